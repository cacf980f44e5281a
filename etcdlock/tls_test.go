package etcdlock

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestTLS puts TLS in front of a server that has none.
func TestTLS(t *testing.T) {
	t.Parallel()
	s := servers.ForTest(t, servers.Etcd)
	ca := newAuthority(t)
	good := ca.issue(t, time.Now().Add(time.Hour))
	front := func(c *tls.Config) string {
		c.NextProtos = []string{"h2"}
		return testkit.Serve(t, c, func(conn net.Conn) { splice(conn, s.Addr()) })
	}
	plain := front(&tls.Config{Certificates: []tls.Certificate{good}})
	expired := front(&tls.Config{Certificates: []tls.Certificate{ca.issue(t, time.Now().Add(-time.Minute))}})
	mutual := front(&tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool()})
	trust := "?tls_ca=" + ca.file
	mine := trust + "&tls_cert=" + ca.file + ".client&tls_key=" + ca.file + ".key"
	ca.writeClient(t)

	for _, user := range []string{"", "u:s3cret@"} {
		for what, tt := range map[string]struct{ url, part string }{
			"wrong CA":              {"etcds://" + user + plain, "certificate signed by unknown authority"},
			"wrong name":            {"etcds://" + user + plain + trust + "&tls_server_name=other", "valid for"},
			"expired":               {"etcds://" + user + expired + trust, "expired"},
			"no client certificate": {"etcds://" + user + mutual + trust, "certificate required"},
			"TLS to plaintext":      {"etcds://" + user + s.Addr() + trust, "does the server speak TLS?"},
			"plaintext to TLS":      {"etcd://" + user + plain, "does the server want TLS, as etcds:// means?"},
		} {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				testkit.Within(t, defaultDial/2, func() { wantFailure(t, t.Context(), tt.url, nil, tt.part) })
			})
		}
	}
	for _, url := range []string{
		"etcds://" + plain + trust,
		"etcd://" + plain + trust + "&tls=on",
		"etcds://" + plain + "?tls=insecure-skip-verify",
		"etcds://" + mutual + mine,
	} {
		locker, err := Open(t.Context(), url, nil)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if lock, err := locker.Lock(t.Context(), "x"); err != nil || lock.Unlock(t.Context()) != nil {
			t.Errorf("%s: %v", url, err)
		}
		if err := locker.Close(); err != nil {
			t.Error(err)
		}
	}
}

func splice(conn net.Conn, target string) {
	defer conn.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, conn)
	}()
	_, _ = io.Copy(conn, server)
}

// authority issues certificates.
type authority struct {
	file string // of its own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{file: filepath.Join(t.TempDir(), "ca.pem"), key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// issue returns a certificate for 127.0.0.1, valid until end.
func (a *authority) issue(t *testing.T, end time.Time) tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    end.Add(-2 * time.Hour),
		NotAfter:     end,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// writeClient issues a certificate for a client, in files beside the authority's.
func (a *authority) writeClient(t *testing.T) {
	t.Helper()
	c := a.issue(t, time.Now().Add(time.Hour))
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.file+".client", "CERTIFICATE", c.Certificate[0])
	writePEM(t, a.file+".key", "PRIVATE KEY", key)
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
