package certmagiclock

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

func open(t *testing.T, url string) distlock.Locker {
	t.Helper()
	l, err := backends.Open(t.Context(), url)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Should(t, l.Close()) })
	return l
}

// Two processes with one storage want a certificate of one name: certmagic asks the
// issuer once.
func TestOneCertificate(t *testing.T) {
	servers.Each(t, func(t *testing.T, url string) {
		issuer := newIssuer(t)
		files := &certmagic.FileStorage{Path: t.TempDir()}
		var wg sync.WaitGroup
		for range 4 {
			locker := open(t, url)
			wg.Go(func() {
				config := certmagic.New(certmagic.NewCache(certmagic.CacheOptions{
					GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return &certmagic.Default, nil },
					Logger:           zap.NewNop(),
				}), certmagic.Config{Storage: Graft(files, locker), Issuers: []certmagic.Issuer{issuer}, Logger: zap.NewNop()})
				if err := config.ObtainCertSync(t.Context(), "example.com"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := issuer.issued.Load(); n != 1 {
			t.Errorf("%d certificates were issued, want 1", n)
		}
	})
}

// A lease of 30 days would keep the name from others for that long after a crash.
func TestRenewLockLeaseDoesNotExtend(t *testing.T) {
	l := New(open(t, "mem://lease"))
	if err := l.RenewLockLease(t.Context(), "a", time.Hour); err == nil {
		t.Error("a lock that is not held was renewed")
	}
	if err := l.Lock(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := l.RenewLockLease(t.Context(), "a", 30*24*time.Hour); err != nil {
		t.Error(err)
	}
	if left := time.Until(l.held["a"][0].Deadline()); left > distlock.DefaultTTL {
		t.Errorf("the lease has %v left, want %v at the most", left, distlock.DefaultTTL)
	}
	if err := l.Unlock(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// After a loss the process has two locks of one name: each Unlock frees its own.
func TestTwoOfOneName(t *testing.T) {
	locker := open(t, "mem://two")
	l, ctx := New(locker), t.Context()
	if err := l.Lock(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := distlock.Break(ctx, locker, Prefix+"a", 0); err != nil {
		t.Fatal(err)
	}
	if ok, err := l.TryLock(ctx, "a"); !ok || err != nil {
		t.Fatalf("got %v, %v", ok, err)
	}
	if err := l.Unlock(ctx, "a"); err != nil { // of the lock that was lost
		t.Errorf("the loss is an error: %v", err)
	}
	if ok, err := l.TryLock(ctx, "a"); ok || err != nil {
		t.Errorf("the second lock was freed by the first: %v, %v", ok, err)
	}
	if err := l.Unlock(ctx, "a"); err != nil {
		t.Error(err)
	}
	if st, err := distlock.Inspect(ctx, locker, Prefix+"a"); err != nil || st.Held {
		t.Errorf("held %v, %v", st.Held, err)
	}
	if err := l.Unlock(ctx, "a"); err == nil {
		t.Error("a third Unlock succeeded")
	}
}

// certmagic asks for the lease before each attempt, for up to 30 days, and never locks again: a lock that was lost is taken
// again, unless another has it.
func TestRenewLockLeaseAfterALoss(t *testing.T) {
	servers.Each(t, func(t *testing.T, url string) {
		locker, ctx := open(t, url), t.Context()
		l, other := New(locker), New(open(t, url))
		must := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		must("Lock", l.Lock(ctx, "lost"))
		must("Break", distlock.Break(ctx, locker, Prefix+"lost", 0))
		must("Lock of another", other.Lock(ctx, "lost"))
		_ = l.held["lost"][0].Extend(ctx, distlock.DefaultTTL) // as the next renewal would
		if err := l.RenewLockLease(ctx, "lost", time.Minute); !errors.Is(err, distlock.ErrLost) || !errors.Is(err, distlock.ErrHeld) {
			t.Errorf("while another has it: %v", err)
		}
		must("Unlock of another", other.Unlock(ctx, "lost"))
		must("RenewLockLease", l.RenewLockLease(ctx, "lost", time.Minute))
		if ok, err := other.TryLock(ctx, "lost"); ok || err != nil {
			t.Errorf("another got what was taken again: %v, %v", ok, err)
		}
		must("Unlock", l.Unlock(ctx, "lost"))
		must("Lock of another", other.Lock(ctx, "lost"))
		must("Unlock of another", other.Unlock(ctx, "lost"))
	})
}

// A goroutine that has the name is not stopped by one that has lost it, nor does it leave its lock to that one.
func TestLeaseOfTwo(t *testing.T) {
	locker, ctx := open(t, "mem://lease-of-two"), t.Context()
	l := New(locker)
	if err := l.Lock(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := distlock.Break(ctx, locker, Prefix+"a", 0); err != nil {
		t.Fatal(err)
	}
	_ = l.held["a"][0].Extend(ctx, distlock.DefaultTTL)
	if err := l.Lock(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := l.RenewLockLease(ctx, "a", time.Minute); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := l.Unlock(ctx, "a"); err != nil {
			t.Error(err)
		}
	}
	if st, err := distlock.Inspect(ctx, locker, Prefix+"a"); err != nil || st.Held {
		t.Errorf("held %v, %v", st.Held, err)
	}
}

// away is a Locker of a backend that is away for so many calls.
type away struct {
	distlock.Locker
	calls int
}

func (a *away) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	if a.calls--; a.calls >= 0 {
		return nil, errors.New("connection refused")
	}
	return a.Locker.Lock(ctx, name, opts...)
}

// certmagic gives up a new certificate if it cannot lock.
func TestLockOutlivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(&away{open(t, "mem://away"), 5})
		if err := l.Lock(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if err := l.Unlock(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		began := time.Now()
		if err := New(&away{open(t, "mem://away"), 1000}).Lock(t.Context(), "a"); err == nil || time.Since(began) > 2*outage {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := New(&away{open(t, "mem://away"), 1000}).Lock(ctx, "a"); err == nil || ctx.Err() == nil {
			t.Errorf("got %v", err)
		}
	})
}

// certmagic unlocks with the context of an operation that was cancelled.
func TestUnlockAfterTheContext(t *testing.T) {
	servers.Each(t, func(t *testing.T, url string) {
		a, b := New(open(t, url)), New(open(t, url))
		ctx, cancel := context.WithCancel(t.Context())
		if err := a.Lock(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if ok, err := b.TryLock(ctx, "a"); ok || err != nil {
			t.Errorf("got %v, %v, want false and no error", ok, err)
		}
		cancel()
		if err := a.Unlock(ctx, "a"); err != nil {
			t.Error(err)
		}
		if ok, err := b.TryLock(t.Context(), "a"); !ok || err != nil {
			t.Errorf("after Unlock: %v, %v", ok, err)
		}
		if err := b.Unlock(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	})
}

// issuer is a certificate authority that counts what it signs.
type issuer struct {
	key    *ecdsa.PrivateKey
	issued atomic.Int32
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{key: key}
}

func (*issuer) IssuerKey() string { return "test" }

func (i *issuer) Issue(_ context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	i.issued.Add(1)
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: csr.DNSNames, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, csr.PublicKey, i.key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}
