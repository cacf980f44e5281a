package servers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

var mysqlRecipe = recipe{
	kind:  MySQL,
	port:  "3306",
	image: "mysql:9",
	local: localMySQL,
	container: func(at site) containerSpec {
		return containerSpec{
			cmd: append(append([]string{"mysqld"}, mysqlArgs...), "--mysqlx=OFF"),
			env: map[string]string{
				"MYSQL_ROOT_PASSWORD": at.secret,
				"MYSQL_DATABASE":      "distlock",
				"MYSQL_USER":          "distlock",
				"MYSQL_PASSWORD":      at.secret,
			},
		}
	},
	url: func(at site) endpoint {
		return endpoint{scheme: "mysql", userinfo: "distlock:" + at.secret, hosts: at.addr(), tail: "/distlock"}
	},
	admin: func(at site) string {
		return endpoint{scheme: "mysql", userinfo: "root:" + at.secret, hosts: at.addr(), tail: "/distlock"}.String()
	},
	probe: probeMySQL,
}

// mysqlArgs are understood by MySQL 8 and 9 and by MariaDB.
//
// flush-log-at-trx-commit=2 hands each commit's log record to the kernel before the reply and fsyncs once a second: a
// killed server recovers every commit it acknowledged. The doublewrite buffer stays on, for a SIGKILL can cut the
// write of a page in two even in the page cache. The binary log is for replicas and would double the writes.
// Buffers are small because several test binaries run servers at once. Names are not resolved: a reverse look-up of
// a container network's address can take seconds.
var mysqlArgs = []string{
	"--skip-log-bin",
	"--skip-name-resolve",
	"--innodb-flush-log-at-trx-commit=2",
	"--innodb-buffer-pool-size=64M",
	"--innodb-use-native-aio=0", // the kernel's budget of requests is shared by all containers of a host, and runs out
	"--performance-schema=OFF",
	"--max-connections=1500",
}

// mysqlInit makes the database and its users. It runs before the server listens: no moment has open accounts.
// MariaDB creates password-less roots for the loopback addresses too, hence the drops. One statement a line, as
// --init-file demands.
//
//go:embed mysql_init.sql
var mysqlInit string

// localMySQL runs MySQL or MariaDB, whichever is installed. It takes nothing from the system's configuration: a
// system server on the same machine is neither used nor disturbed.
func localMySQL(ctx context.Context, at site) (launch, error) {
	path, ok := findProgram("mysqld", "mariadbd")
	if !ok {
		return launch{}, unavailable{"neither mysqld nor mariadbd is installed"}
	}
	version, err := RunTool(ctx, at.dir, path, "--no-defaults", "--version")
	if err != nil {
		return launch{}, err
	}
	data := filepath.Join(at.dir, "data")
	initFile := filepath.Join(at.dir, "init.sql")
	if err := os.Mkdir(data, 0o700); err != nil {
		return launch{}, err
	}
	script := strings.ReplaceAll(mysqlInit, "{{secret}}", at.secret)
	if err := os.WriteFile(initFile, []byte(script), 0o600); err != nil {
		return launch{}, err
	}
	args := []string{"--no-defaults", "--datadir=" + data, "--tmpdir=" + at.dir}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root") // without it neither flavour runs as root
	}
	name := "mysqld"
	if strings.Contains(string(version), "MariaDB") {
		name = "mariadbd"
		err = initMariaDB(ctx, at.dir, args)
	} else {
		// The port of the second protocol would collide between servers; the import folder of the distribution's
		// package may be missing or not ours.
		args = append(args, "--mysqlx=OFF", "--secure-file-priv=NULL")
		_, err = RunTool(ctx, at.dir, path, append(args, "--initialize-insecure")...)
	}
	if err != nil {
		return launch{}, err
	}
	args = append(args,
		"--bind-address=127.0.0.1",
		"--port="+strconv.Itoa(at.port),
		"--socket=mysql.sock", // relative to the data folder: an absolute path could exceed a socket's 100 characters
		"--pid-file=mysqld.pid",
		"--init-file="+initFile,
	)
	return launch{name: name, path: path, args: append(args, mysqlArgs...)}, nil
}

func initMariaDB(ctx context.Context, dir string, args []string) error {
	tool, ok := findProgram("mariadb-install-db", "mysql_install_db")
	if !ok {
		return unavailable{"mariadbd is installed, mariadb-install-db is not"}
	}
	// --force: otherwise it fails where neither the machine's name nor localhost can be looked up, as in a bare chroot.
	args = append(args, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", "--force",
		"--innodb-use-native-aio=0")
	_, err := RunTool(ctx, dir, tool, args...)
	return err
}

func probeMySQL(ctx context.Context, at endpoint) (version string, err error) {
	connector, err := mysqlConnector(at)
	if err != nil {
		return "", err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	if err := db.PingContext(ctx); err != nil {
		return "", err
	}
	err = db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
	return version, err
}

func mysqlConnector(at endpoint) (driver.Connector, error) {
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", at.addr(), at.path()
	config.User, config.Passwd = at.login()
	config.Logger = &mysql.NopLogger{} // that a server is not up yet is no news
	return mysql.NewConnector(config)
}
