package servers

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// galeraScript is a "state snapshot transfer" without the programs that MariaDB's own scripts need.
//
//go:embed galera_sst.sh
var galeraScript string

// galeraMember is a MariaDB with Galera's library. Its peer port is for the cluster, the one of elections for what a
// member has missed while it was down.
func galeraMember(ctx context.Context, p *plan, i int) (launch, error) {
	at := p.sites[i]
	provider, ok := findGalera()
	if !ok {
		return launch{}, unavailable{"Galera's library is not installed"}
	}
	run, err := localMySQL(ctx, at.site)
	if err != nil {
		return launch{}, err
	}
	if run.name != "mariadbd" {
		return launch{}, unavailable{"Galera is for MariaDB, and MySQL is installed"}
	}
	script := filepath.Join(at.dir, "wsrep_sst_ensemble")
	if err := os.WriteFile(script, []byte(galeraScript), 0o700); err != nil {
		return launch{}, err
	}
	run.env = append(run.env, "PATH="+at.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	if p.Clocks {
		if err := run.fakeClock(at.dir); err != nil {
			return launch{}, err
		}
	}
	var members []string
	for _, other := range p.sites {
		members = append(members, loopback(other.peer))
	}
	run.args = append(run.args,
		"--wsrep-on=ON",
		"--wsrep-provider="+provider,
		"--wsrep-provider-options=gcache.size=32M;pc.wait_prim_timeout=PT1M;gmcast.listen_addr=tcp://"+loopback(at.peer)+";ist.recv_addr="+loopback(at.election),
		fmt.Sprintf("--wsrep-cluster-name=distlock-%d", p.sites[0].port),
		"--wsrep-cluster-address=gcomm://"+strings.Join(members, ","),
		"--wsrep-node-address="+loopback(at.peer),
		fmt.Sprintf("--wsrep-node-name=m%d", i),
		"--wsrep-sst-method=ensemble",
		"--wsrep-sst-receive-address="+filepath.Join(at.dir, "data"),
		"--binlog-format=ROW",
		"--innodb-autoinc-lock-mode=2",
	)
	run.args = append(run.args, p.Extra...)
	again := slices.Clone(run.args)
	run.again = func(ctx context.Context) ([]string, error) {
		position, err := galeraPosition(ctx, at.dir, run.path, again)
		return append(again, "--wsrep-start-position="+position), err
	}
	if i == 0 {
		run.args = append(run.args, "--wsrep-new-cluster")
		return run, nil
	}
	// It gets the first one's data.
	data := filepath.Join(at.dir, "data")
	return run, errors.Join(os.RemoveAll(data), os.Mkdir(data, 0o700))
}

var galeraRecovered = regexp.MustCompile(`Recovered position: (\S+)`)

// galeraPosition is up to where a member that was killed has the cluster's writes.
func galeraPosition(ctx context.Context, dir, path string, args []string) (string, error) {
	out, err := RunTool(ctx, dir, path, append(slices.Clone(args), "--wsrep-recover")...)
	if err != nil {
		return "", err
	}
	found := galeraRecovered.FindSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("no position of a member%s", tail(out))
	}
	return string(found[1]), nil
}

// probeGalera waits until a member has caught up with the others. It takes connections before.
func probeGalera(ctx context.Context, at endpoint) (version string, err error) {
	if version, err = probeMySQL(ctx, at); err != nil {
		return "", err
	}
	state, err := galeraStatus(ctx, at, "wsrep_local_state_comment")
	if err == nil && state != "Synced" {
		err = errors.New("it is not in step with the cluster: " + state)
	}
	return version, err
}

// Conflicts is how many transactions of a Galera cluster were given up so far for one of another member.
func (e *Ensemble) Conflicts(ctx context.Context) (n int, err error) {
	for _, s := range e.Members {
		for _, name := range []string{"wsrep_local_cert_failures", "wsrep_local_bf_aborts"} {
			text, err := galeraStatus(ctx, s.url, name)
			if err != nil {
				return 0, err
			}
			more, err := strconv.Atoi(text)
			if err != nil {
				return 0, err
			}
			n += more
		}
	}
	return n, nil
}

func galeraStatus(ctx context.Context, at endpoint, name string) (value string, err error) {
	connector, err := mysqlConnector(at)
	if err != nil {
		return "", err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	err = db.QueryRowContext(ctx, "SHOW STATUS LIKE '"+name+"'").Scan(&name, &value)
	return value, err
}

// findGalera looks where Debian, Fedora and Arch put the library.
func findGalera() (string, bool) {
	for _, path := range []string{"/usr/lib/galera", "/usr/lib64/galera-4", "/usr/lib64/galera", "/usr/lib"} {
		path += "/libgalera_smm.so"
		if _, err := os.Stat(path); err == nil {
			return path, true
		}
	}
	return "", false
}
