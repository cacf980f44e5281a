//go:build unix

package main

import (
	"bufio"
	"crypto/tls"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// suspects are checks that use what only some deployments have: a proxy, child processes.
const suspects = "^(core/(acquire-release|cross-process|down-is-not-held)|expiry/not-early|owner/stale-unlock-free)$"

// A correct backend is not accused, by whatever URL it is reached: by two of them in one run, by chance.
func TestCheckAccusesNobody(t *testing.T) {
	urls := map[string]func(*testing.T) string{
		"mem":            func(*testing.T) string { return "mem://innocent" },
		"mysql with TLS": secureMySQL, // it begins in plain text, which testkit.Front cannot do
		"redis cluster": func(t *testing.T) string {
			var hosts []string
			for _, s := range servers.ClusterForTest(t, 3) {
				hosts = append(hosts, s.Addr())
			}
			return "redis://" + strings.Join(hosts, ",") + "?cluster=true"
		},
		"redis sentinel": func(t *testing.T) string {
			return "redis+sentinel://" + servers.SentinelForTest(t, servers.ConfiguredForTest(t, servers.Redis)).Addr() + "?master=main"
		},
		"redis with TLS": func(t *testing.T) string { return secured(t, servers.Redis, 1) },
		"etcd with TLS":  func(t *testing.T) string { return secured(t, servers.Etcd, 1) },
		"etcd, several hosts": func(t *testing.T) string {
			s := sharedServer(t, servers.Etcd)
			return s.URLVia(s.Addr() + "," + testkit.Front(t, nil, s.Addr()))
		},
		"zk, several hosts, with TLS": func(t *testing.T) string { return secured(t, servers.ZooKeeper, 2) },
	}
	for _, kind := range servers.Kinds {
		urls[string(kind)] = func(t *testing.T) string { return sharedURL(t, kind) }
	}
	for _, name := range servers.Sample(2, slices.Collect(maps.Keys(urls))...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			innocent(t, urls[name](t))
		})
	}
}

// secured is the URL of a shared server behind TLS, by so many addresses.
func secured(t *testing.T, kind servers.Kind, hosts int) string {
	ca := testkit.NewAuthority(t)
	config := &tls.Config{Certificates: []tls.Certificate{ca.Issue(time.Now().Add(time.Hour))}, NextProtos: []string{"h2"}}
	var addrs []string
	for range hosts {
		addrs = append(addrs, testkit.Front(t, config, sharedServer(t, kind).Addr()))
	}
	return string(kind) + "s://" + strings.Join(addrs, ",") + "?tls_ca=" + url.QueryEscape(ca.File)
}

func innocent(t *testing.T, rawURL string) {
	var out []byte
	var err error
	for try := 1; ; try++ {
		cmd := exec.CommandContext(t.Context(), "distlock", "check", "--run", suspects)
		cmd.Env = append(os.Environ(), "DISTLOCK_URL="+rawURL)
		if out, err = cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != statusUnavailable || try == 3 {
			break
		}
		t.Logf("inconclusive: once more: %s", out)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if !strings.Contains(string(out), "passed   E1  expiry/not-early") {
		t.Errorf("not checked: %s", out)
	}
	for _, line := range strings.Split(string(out), "\n") {
		if strings.HasPrefix(line, "skipped") && !strings.Contains(line, "needs") {
			t.Errorf("no reason is told: %s", line)
		}
	}
}

// checkOfAStoreThatStops: a store that stops for a while makes checks inconclusive, and does not make
// it break the contract.
func checkOfAStoreThatStops(t *testing.T, s *servers.Server) {
	cmd := exec.CommandContext(t.Context(), "distlock", "check", "--run", "^core/")
	cmd.Env = append(os.Environ(), "DISTLOCK_URL="+backendURL(s))
	stderr, err := cmd.StderrPipe()
	must(t, err, cmd.Start())
	inconclusive := regexp.MustCompile(`^\S+ inconclusive \(`)
	var told strings.Builder
	stopped, resumed := false, false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		told.WriteString(lines.Text() + "\n")
		switch {
		case !stopped && strings.HasPrefix(lines.Text(), "passed"):
			stopped = true
			must(t, s.Pause(t.Context()))
		case stopped && !resumed && inconclusive.MatchString(lines.Text()):
			resumed = true
			must(t, s.Resume(t.Context()))
		}
	}
	_ = cmd.Wait() // its outcome is read from ProcessState
	if status := cmd.ProcessState.ExitCode(); status != statusUnavailable || !resumed {
		t.Errorf("exit status %d: %s", status, &told)
	}
	if !resumed {
		must(t, s.Resume(t.Context()))
	}
}

// secureMySQL starts a MySQL server with a certificate of its own, and returns the URL
// of a user who may not do without TLS.
func secureMySQL(t *testing.T) string {
	ca := testkit.NewAuthority(t)
	cert, key := ca.Files()
	s := servers.ConfiguredForTest(t, servers.MySQL, "ssl-ca="+ca.File, "ssl-cert="+cert, "ssl-key="+key)
	_, err := adminOf(t, s).ExecContext(t.Context(), "ALTER USER distlock REQUIRE SSL")
	must(t, err)
	return strings.Replace(s.URL(), "mysql://", "mysqls://", 1) + "?create=true&tls_ca=" + url.QueryEscape(ca.File)
}
