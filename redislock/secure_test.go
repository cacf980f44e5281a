package redislock

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
)

// certificate makes one that signs itself, for 127.0.0.1.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &pair.PublicKey, pair)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(pair)
	must(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return cert, key
}

// TLS with client certificates works, and each way to get it wrong has an error that
// names it.
func TestTLS(t *testing.T) {
	cert, key := certificate(t)
	_, admin := start(t, "tls-port "+servers.SparePort, "tls-cert-file "+cert, "tls-key-file "+key, "tls-ca-cert-file "+cert, "tls-auth-clients yes")
	addr := "127.0.0.1:" + admin.ConfigGet(t.Context(), "tls-port").Val()["tls-port"]
	q := func(pairs ...string) string {
		v := url.Values{"ttl": {"600ms"}}
		for i := 0; i < len(pairs); i += 2 {
			v.Set(pairs[i], pairs[i+1])
		}
		return "/?" + v.Encode()
	}
	all := []string{"tls_ca", cert, "tls_cert", cert, "tls_key", key}
	l, err := Open(t.Context(), "rediss://"+addr+q(append(all, "ttl", "3s")...), nil)
	must(t, err)
	exercise(t, l)
	must(t, l.Close())
	for what, c := range map[string]struct{ url, want string }{
		"no client certificate": {"rediss://" + addr + q("tls_ca", cert), "certificate required"},
		"unknown authority":     {"rediss://" + addr + q("tls_cert", cert, "tls_key", key), "unknown authority"},
		"another name":          {"rediss://" + addr + q(append(all, "tls_server_name", "elsewhere")...), "elsewhere"},
		"a port without TLS":    {"rediss://" + admin.Options().Addr + q(append(all, "dial_timeout", "500ms")...), "without TLS"},
		"no TLS at a TLS port":  {"redis://" + addr + q(), ""},
	} {
		began := time.Now()
		l, err := Open(t.Context(), c.url, nil)
		if err == nil {
			must(t, l.Close())
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("%s: told after %v", what, took)
		}
	}
}

// A password may have any character.
func TestPasswords(t *testing.T) {
	const password = "p@ss:w/o?r#d% ü\"&=x"
	s, admin := own(t)
	rule := append([]string{"reset", "on", ">" + password, "~distlock:*", "resetchannels", "&distlock:*"}, aclRule(t, false)...)
	must(t, admin.ACLSetUser(t.Context(), "locker", rule...).Err())
	at := func(password string) string {
		return (&url.URL{Scheme: "redis", User: url.UserPassword("locker", password), Host: s.Addr(), RawQuery: "ttl=3s"}).String()
	}
	l, err := Open(t.Context(), at(password), nil)
	must(t, err)
	exercise(t, l)
	must(t, l.Close())
	if _, err := Open(t.Context(), at(password+"x"), nil); err == nil || !strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "p@ss") {
		t.Errorf("Open with another password: %v", err)
	}
}

// When the credentials have changed, the loss says so.
func TestRotatedCredentials(t *testing.T) {
	t.Parallel() // it waits for the end of a lease
	s, admin := own(t)
	must(t, admin.ACLSetUser(t.Context(), "locker", "on", ">old", "~*", "allchannels", "+@all").Err())
	l, err := Open(t.Context(), fmt.Sprintf("redis://locker:old@%s?ttl=3s", s.Addr()), nil)
	must(t, err)
	defer l.Close()
	lock, err := l.Lock(t.Context(), "x")
	must(t, err)
	must(t, admin.ACLSetUser(t.Context(), "locker", "resetpass", ">new").Err())
	must(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "locker").Err())
	<-lock.Done()
	if err := lock.Err(); !errors.Is(err, distlock.ErrLost) || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("the lock has ended with %v, want the server's answer to the old password", err)
	}
}
