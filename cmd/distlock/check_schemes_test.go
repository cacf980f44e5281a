//go:build unix

package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// suspects are checks that use what only some deployments have: a proxy, child processes.
const suspects = "^(core/(acquire-release|cross-process|down-is-not-held|stale-residue)|owner/stale-unlock-free)$"

// A correct backend is not accused, by whatever URL it is reached.
func TestCheckAccusesNobody(t *testing.T) {
	urls := map[string]func(*testing.T) string{
		"mem":            func(*testing.T) string { return "mem://innocent" },
		"mysql with TLS": secureMySQL, // it begins in plain text, which front cannot do
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
		"zk with TLS":    func(t *testing.T) string { return secured(t, servers.ZooKeeper, 1) },
		"etcd, several hosts": func(t *testing.T) string {
			s := sharedServer(t, servers.Etcd)
			return s.URLVia(s.Addr() + "," + front(t, s.Addr(), nil))
		},
		"zk, several hosts, with TLS": func(t *testing.T) string { return secured(t, servers.ZooKeeper, 2) },
	}
	for _, kind := range servers.Kinds {
		urls[string(kind)] = func(t *testing.T) string { return sharedURL(t, kind) }
	}
	for name, url := range urls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			innocent(t, url(t))
		})
	}
}

// secured is the URL of a shared server behind TLS, by so many addresses.
func secured(t *testing.T, kind servers.Kind, hosts int) string {
	certificate, ca := selfSigned(t)
	var addrs []string
	for range hosts {
		addrs = append(addrs, front(t, sharedServer(t, kind).Addr(), &certificate))
	}
	return string(kind) + "s://" + strings.Join(addrs, ",") + "?tls_ca=" + url.QueryEscape(ca)
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
	if !strings.Contains(string(out), "passed   E1  core/stale-residue") {
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
	certificate, ca := selfSigned(t)
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	must(t, err)
	file := filepath.Join(t.TempDir(), "key.pem")
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	s := servers.ConfiguredForTest(t, servers.MySQL, "ssl-ca="+ca, "ssl-cert="+ca, "ssl-key="+file)
	_, err = adminOf(t, s).ExecContext(t.Context(), "ALTER USER distlock REQUIRE SSL")
	must(t, err)
	return strings.Replace(s.URL(), "mysql://", "mysqls://", 1) + "?create=true&tls_ca=" + url.QueryEscape(ca)
}

// front is a port before the one of a server, with TLS if there is a certificate.
func front(t *testing.T, target string, certificate *tls.Certificate) (addr string) {
	t.Helper()
	var config *tls.Config
	if certificate != nil {
		config = &tls.Config{Certificates: []tls.Certificate{*certificate}, NextProtos: []string{"h2"}}
	}
	return testkit.Serve(t, config, func(client net.Conn) { pass(client, target) })
}

// pass connects client with target until one of them ends.
func pass(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server) // it ends with an error when either is closed
		client.Close()
	}()
	_, _ = io.Copy(server, client)
}

// selfSigned returns a certificate for 127.0.0.1, and the file that it is in.
func selfSigned(t *testing.T) (certificate tls.Certificate, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	file = filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
