package etcdlock

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
)

// wantFailure opens url, which must fail with an error that matches target, if that
// is not nil, and says part.
func wantFailure(t *testing.T, ctx context.Context, url string, target error, part string) {
	t.Helper()
	l, err := Open(ctx, url, nil)
	if err == nil {
		_ = l.Close()
		t.Fatalf("Open(%s) has succeeded, want %q", url, part)
	}
	if target != nil && !errors.Is(err, target) || !strings.Contains(err.Error(), part) {
		t.Errorf("Open: %v, want %v and %q", err, target, part)
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error shows the password: %v", err)
	}
	// The end of our own patience must not look like that of the caller's context.
	if ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		t.Errorf("Open: %v, which matches a context's error", err)
	}
}

func TestOpenWithoutServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent := l.Addr().String() // accepts, and says nothing
	defer l.Close()
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = dead.Close()
	wantFailure(t, t.Context(), "etcd://"+dead.Addr().String(), nil, "connection refused")
	wantFailure(t, t.Context(), "etcd://"+silent+"?dial_timeout=100ms", nil, "no answer from")
	wantFailure(t, t.Context(), "etcd://u:s3cret@"+silent+"?dial_timeout=100ms", nil, "no answer from")
	for _, url := range []string{"etcd://" + silent, "etcd://u:s3cret@" + silent} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		wantFailure(t, ctx, url, context.DeadlineExceeded, "")
		cancel()
		if took := time.Since(began); took > defaultDial/2 {
			t.Errorf("%s: Open has returned %v after its context ended", url, took)
		}
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	wantFailure(t, done, "etcd://"+silent, context.Canceled, "")
}

func TestNewWithoutConnection(t *testing.T) {
	if _, err := New(clientv3.NewCtxClient(t.Context()), nil); !errors.Is(err, distlock.ErrInvalid) {
		t.Errorf("New: %v, want ErrInvalid", err)
	}
}

// TestPermissions holds docs/etcd.md to what it says: a role for the prefix is all
// that a user needs.
func TestPermissions(t *testing.T) {
	s := servers.ForTest(t, servers.Etcd)
	if !s.Controlled() {
		t.Skip("a server given by URL is not the test's to set passwords on")
	}
	admin := newClient(t, s.Addr())
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	must(admin.RoleAdd(ctx, "locks"))
	must(admin.RoleGrantPermission(ctx, "locks", "app/locks/", clientv3.GetPrefixRangeEnd("app/locks/"), clientv3.PermissionType(clientv3.PermReadWrite)))
	must(admin.UserAdd(ctx, "app", "s3cret"))
	must(admin.UserGrantRole(ctx, "app", "locks"))
	must(admin.UserAdd(ctx, "root", "root"))
	must(admin.UserGrantRole(ctx, "root", "root"))
	must(admin.AuthEnable(ctx))

	at := func(user, rest string) string { return "etcd://" + user + s.Addr() + rest }
	wantFailure(t, ctx, at("", "/app/locks"), rpctypes.ErrUserEmpty, "")
	wantFailure(t, ctx, at("app:wrong-s3cret@", "/app/locks"), rpctypes.ErrAuthFailed, "")
	wantFailure(t, ctx, at("app:s3cret@", ""), rpctypes.ErrPermissionDenied, "")
	wantFailure(t, ctx, at("app:s3cret@", "/app"), rpctypes.ErrPermissionDenied, "")

	locker, err := Open(ctx, at("app:s3cret@", "/app/locks?ttl=2s"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, opts := range [][]distlock.Option{nil, {distlock.NoRenewal()}} {
		lock, err := locker.TryLock(ctx, "x", opts...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locker.TryLock(ctx, "x", opts...); !errors.Is(err, distlock.ErrHeld) {
			t.Errorf("TryLock: %v, want ErrHeld", err)
		}
		waited := make(chan error, 1)
		go func() {
			next, err := locker.Lock(ctx, "x")
			if err == nil {
				err = next.Unlock(ctx)
			}
			waited <- err
		}()
		before := lock.Deadline()
		if err := lock.Extend(ctx, 5*time.Second); err != nil || !lock.Deadline().After(before) {
			t.Errorf("Extend: %v", err)
		}
		if list, err := locker.List(ctx, ""); err != nil || len(list) != 1 || list[0].Remaining == 0 {
			t.Errorf("List: %+v, %v", list, err)
		}
		if err := lock.Unlock(ctx); err != nil {
			t.Error(err)
		}
		if err := <-waited; err != nil {
			t.Error(err)
		}
	}
	// A renewal keeps alive and lists, which want rights to all keys of the lease.
	client, err := dial(ctx, clientv3.Config{
		Endpoints: []string{s.Addr()}, Username: "app", Password: "s3cret", DialTimeout: defaultDial, Logger: zap.NewNop(),
	}, "app/locks/")
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDriver(client, "app/locks", true)
	if err != nil {
		t.Fatal(err)
	}
	st := &store{t: t, driver: d}
	c := st.won("y", nil)
	c.lease.age(20 * time.Second)
	if err := st.renew(c)[0]; err != nil {
		t.Error("renewal:", err)
	}
	st.release(c, nil)
	if err := d.Break(ctx, "y"); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("Break: %v, want ErrLost", err)
	}
	if err := errors.Join(d.Close(), locker.Close()); err != nil {
		t.Error(err)
	}
}

// TestTLS puts TLS in front of a server that has none.
func TestTLS(t *testing.T) {
	s := servers.ForTest(t, servers.Etcd)
	certificate, file := selfSigned(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go splice(conn, s.Addr())
		}
	}()
	address := l.Addr().String()
	wantFailure(t, t.Context(), "etcds://"+address+"?dial_timeout=2s", nil, "certificate")
	wantFailure(t, t.Context(), "etcds://"+address+"?tls_server_name=other&dial_timeout=2s&tls_ca="+file, nil, "certificate")
	for _, url := range []string{
		"etcds://" + address + "?tls_ca=" + file,
		"etcd://" + address + "?tls=on&tls_ca=" + file,
		"etcds://" + address + "?tls=insecure-skip-verify",
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

// selfSigned returns a certificate for 127.0.0.1, and a file with it.
func selfSigned(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
