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
)

// suspects are checks that use what only some deployments have: a proxy, child processes.
const suspects = "^(core/(acquire-release|cross-process|down-is-not-held|stale-residue)|owner/stale-unlock-free)$"

// A correct backend is not accused, by whatever URL it is reached.
func TestCheckAccusesNobody(t *testing.T) {
	t.Run("mem", func(t *testing.T) { t.Parallel(); innocent(t, "mem://innocent") })
	t.Run("mysql with TLS", func(t *testing.T) { innocent(t, secureMySQL(t)) })
	t.Run("redis cluster", func(t *testing.T) {
		var hosts []string
		for _, s := range servers.ClusterForTest(t, 3) {
			hosts = append(hosts, s.Addr())
		}
		innocent(t, "redis://"+strings.Join(hosts, ",")+"?cluster=true")
	})
	t.Run("redis sentinel", func(t *testing.T) {
		sentinel := servers.SentinelForTest(t, servers.ConfiguredForTest(t, servers.Redis))
		innocent(t, "redis+sentinel://"+sentinel.Addr()+"?master=main")
	})
	for _, kind := range servers.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := servers.ForTest(t, kind)
			t.Run("plain", func(t *testing.T) { innocent(t, backendURL(s)) })
			if kind != servers.MySQL { // begins in plain text: see secureMySQL
				t.Run("TLS", func(t *testing.T) {
					addr, ca := front(t, s.Addr(), true)
					innocent(t, string(kind)+"s://"+addr+"?tls_ca="+url.QueryEscape(ca))
				})
			}
			if kind == servers.ZooKeeper || kind == servers.Etcd {
				t.Run("several hosts", func(t *testing.T) {
					other, _ := front(t, s.Addr(), false)
					innocent(t, string(kind)+"://"+s.Addr()+","+other)
				})
			}
		})
	}
}

func innocent(t *testing.T, rawURL string) {
	cmd := exec.CommandContext(t.Context(), "distlock", "check", "--run", suspects)
	cmd.Env = append(os.Environ(), "DISTLOCK_URL="+rawURL)
	out, err := cmd.CombinedOutput()
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

// A store that stops for a while makes checks inconclusive, and does not make it break
// the contract.
func TestCheckOfAStoreThatStops(t *testing.T) {
	for _, kind := range servers.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := servers.ForTest(t, kind)
			if !s.Controlled() {
				t.Skip("a server given by URL is not stopped")
			}
			cmd := exec.CommandContext(t.Context(), "distlock", "check", "--run", "^(core|owner)/")
			cmd.Env = append(os.Environ(), "DISTLOCK_URL="+backendURL(s))
			stderr, err := cmd.StderrPipe()
			must(t, err, cmd.Start())
			var told strings.Builder
			stopped := false
			for lines := bufio.NewScanner(stderr); lines.Scan(); {
				told.WriteString(lines.Text() + "\n")
				if !stopped && strings.HasPrefix(lines.Text(), "passed") {
					stopped = true
					must(t, s.Pause(t.Context()))
					time.AfterFunc(20*time.Second, func() { s.Resume(t.Context()) })
				}
			}
			_ = cmd.Wait() // its outcome is read from ProcessState
			inconclusive := regexp.MustCompile(`(?m)^\S+ inconclusive \(`).MatchString(told.String())
			if status := cmd.ProcessState.ExitCode(); status != statusUnavailable || !inconclusive {
				t.Errorf("exit status %d: %s", status, &told)
			}
		})
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

// front is a port before the one of a server, with TLS or without, and a file with the
// authority to trust.
func front(t *testing.T, target string, secure bool) (addr, ca string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	if secure {
		var certificate tls.Certificate
		certificate, ca = selfSigned(t)
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}})
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go pass(client, target)
		}
	}()
	return listener.Addr().String(), ca
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
