package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

var postgresRecipe = recipe{
	kind:  Postgres,
	port:  "5432",
	image: "postgres:18",
	local: localPostgres,
	container: func(at site) containerSpec {
		return containerSpec{
			cmd: append([]string{"postgres"}, postgresArgs...),
			env: map[string]string{"POSTGRES_USER": "distlock", "POSTGRES_PASSWORD": at.secret, "POSTGRES_DB": "postgres",
				"POSTGRES_HOST_AUTH_METHOD": "password"},
		}
	},
	url: func(at site) endpoint {
		return endpoint{scheme: "postgres", userinfo: "distlock:" + at.secret, hosts: at.addr(), tail: "/postgres"}
	},
	probe: probePostgres,
}

// postgresArgs: without fsync each commit is still handed to the kernel before its reply, so a killed server recovers
// all that it has acknowledged, and no page is torn: whole pages in the log would make it many times as large. Shared memory
// that is not the processes' own would outlive a SIGKILL, hence mmap.
var postgresArgs = []string{
	"--fsync=off",
	"--full-page-writes=off",
	"--max-connections=1500",
	"--shared-buffers=32MB",
	"--dynamic-shared-memory-type=mmap",
}

// localPostgres runs the newest installed version. Passwords go as they are, over the loopback, in the container as well:
// each connection by SCRAM costs the client thousands of hashes, which -race makes slow. The local server keeps its password
// as MD5, or it would do those itself, of each connection: half of what a connection costs. Nobody comes by its socket.
// Postgres refuses to run as root: then it runs as nobody.
func localPostgres(ctx context.Context, at site) (launch, error) {
	secret := filepath.Join(at.dir, "secret")
	if err := os.WriteFile(secret, []byte(at.secret), 0o600); err != nil {
		return launch{}, err
	}
	return preparedPostgres(ctx, at, "initdb", "--username=distlock", "--pwfile="+secret, "--auth-host=password", "--auth-local=md5", "--encoding=UTF8",
		"--locale=C", "--no-instructions")
}

// preparedPostgres has a tool of the server prepare its data.
func preparedPostgres(ctx context.Context, at site, tool string, args ...string) (launch, error) {
	path, ok := findPostgres("postgres")
	if !ok {
		return launch{}, unavailable{"postgres is not installed"}
	}
	run := launch{name: "postgres", path: path, family: true}
	if os.Geteuid() == 0 {
		run.user = nobody
		files, _ := filepath.Glob(filepath.Join(at.dir, "*")) // the pattern is well-formed
		for _, name := range append(files, at.dir) {
			if err := os.Chown(name, nobody, nobody); err != nil {
				return launch{}, err
			}
		}
	}
	data := filepath.Join(at.dir, "data")
	if _, err := runToolAs(ctx, run.user, at.dir, filepath.Join(filepath.Dir(path), tool), append(args, "--pgdata="+data, "--no-sync")...); err != nil {
		return launch{}, err
	}
	run.args = append([]string{"-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(at.port), "-k", ""}, postgresArgs...)
	return run, nil
}

// findPostgres looks where Debian, Fedora and Homebrew put the programs of the server: mostly not into PATH. Of several
// versions it takes the last.
func findPostgres(name string) (string, bool) {
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/", "/usr/pgsql-*/bin/", "/opt/homebrew/opt/postgresql*/bin/", "/usr/local/opt/postgresql*/bin/"} {
		found, _ := filepath.Glob(pattern + name) // the patterns are well-formed
		if len(found) > 0 {
			return slices.Max(found), true
		}
	}
	return findProgram(name)
}

func probePostgres(ctx context.Context, at endpoint) (version string, err error) {
	if !strings.Contains(at.tail, "?") {
		at.tail += "?sslmode=disable" // as it was started, whatever PGSSLMODE says
	}
	conn, err := pgx.Connect(ctx, at.String())
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SHOW server_version", pgx.QueryExecModeExec).Scan(&version)
	return version, err
}

// StandbyForTest starts a local Postgres that follows another, as a standby does until it is promoted. It has the same users.
func StandbyForTest(t testing.TB, primary *Server) *Server {
	t.Helper()
	return forTest(t, Postgres, func(ctx context.Context, kind Kind) (*Server, error) {
		r := postgresRecipe
		r.url = func(at site) endpoint { return primary.url.at(at.addr()) }
		r.local = func(ctx context.Context, at site) (launch, error) {
			return preparedPostgres(ctx, at, "pg_basebackup", "--dbname="+primary.URL(), "--write-recovery-conf", "--checkpoint=fast")
		}
		s, err := r.startLocal(ctx)
		if err != nil {
			return nil, startError(ctx, kind, nil, err)
		}
		return s, nil
	})
}

// PoolerForTest starts a PgBouncer before a Postgres server: each transaction goes over any of its connections.
func PoolerForTest(t testing.TB, server *Server) *Server {
	t.Helper()
	return forTest(t, Postgres, func(ctx context.Context, kind Kind) (*Server, error) {
		r := recipe{kind: kind, probe: probePostgres, url: func(at site) endpoint { return server.url.at(at.addr()) }}
		r.local = func(_ context.Context, at site) (launch, error) { return localPooler(at, server.url) }
		s, err := r.startLocal(ctx)
		if err != nil {
			return nil, startError(ctx, kind, nil, err)
		}
		return s, nil
	})
}

func localPooler(at site, server endpoint) (launch, error) {
	path, ok := findProgram("pgbouncer")
	if !ok {
		return launch{}, unavailable{"pgbouncer is not installed"}
	}
	host, port, err := net.SplitHostPort(server.addr())
	if err != nil {
		return launch{}, err
	}
	user, password := server.login()
	file := filepath.Join(at.dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 1000
`, host, port, user, password, at.port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return launch{}, err
	}
	run := launch{name: "pgbouncer", path: path, args: []string{file}}
	if os.Geteuid() == 0 {
		run.user = nobody
		err = errors.Join(os.Chown(at.dir, nobody, nobody), os.Chown(file, nobody, nobody))
	}
	return run, err
}
