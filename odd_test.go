package distlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
)

// oddDriver makes claims whose methods can be replaced.
type oddDriver struct {
	distlock.Driver
	try   func() (distlock.Grant, error)
	wait  func() error
	renew func() (distlock.Grant, error)

	tries, renewals atomic.Int32
}

func (d *oddDriver) Claim(r distlock.Request) distlock.Claim {
	return &oddClaim{d.Driver.Claim(r), d}
}

type oddClaim struct {
	distlock.Claim
	d *oddDriver
}

func (c *oddClaim) Try(ctx context.Context) (distlock.Grant, error) {
	c.d.tries.Add(1)
	g, err := c.Claim.Try(ctx)
	if c.d.try != nil {
		return c.d.try()
	}
	return g, err
}

func (c *oddClaim) Wait(ctx context.Context) error {
	if c.d.wait != nil {
		return c.d.wait()
	}
	return c.Claim.Wait(ctx)
}

func (c *oddClaim) Renew(ctx context.Context, ttl time.Duration) (distlock.Grant, error) {
	c.d.renewals.Add(1)
	if c.d.renew != nil {
		return c.d.renew()
	}
	return c.Claim.Renew(ctx, ttl)
}

// odd runs f with a Locker over d and a rival that has no faults.
func odd(t *testing.T, d *oddDriver, f func(t *testing.T, l *distlock.Client, rival distlock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore(nil)
		d.Driver = memlock.NewDriver(store)
		l, err := distlock.New(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(t, l, open(t, store, nil))
	})
}

// An answer that is none must not become a lock, nor leave one.
func TestEmptyGrant(t *testing.T) {
	d := &oddDriver{try: func() (distlock.Grant, error) { return distlock.Grant{}, nil }}
	odd(t, d, func(t *testing.T, l *distlock.Client, rival distlock.Locker) {
		lock, err := l.Lock(bg, "x")
		if lock != nil || err == nil || !strings.Contains(err.Error(), "contract") {
			t.Errorf("got %v and %v", lock, err)
		}
		synctest.Wait()
		if _, err := rival.TryLock(bg, "x"); err != nil {
			t.Error(err)
		}
	})
}

// A confirmation that confirms nothing keeps no lock, and is not asked for at once
// again and again.
func TestEmptyRenewal(t *testing.T) {
	d := &oddDriver{renew: func() (distlock.Grant, error) { return distlock.Grant{}, nil }}
	odd(t, d, func(t *testing.T, l *distlock.Client, _ distlock.Locker) {
		lock := mustLock(t, bg, l, "x")
		before := lock.Deadline()
		<-lock.Done()
		if !lock.Deadline().Equal(before) {
			t.Error("the deadline has moved")
		}
		if n := d.renewals.Load(); n < 2 || n > 30 {
			t.Errorf("%d renewals within one lease", n)
		}
	})
}

// A driver that wakes for nothing is slowed down.
func TestWaitThatNeverWaits(t *testing.T) {
	d := &oddDriver{wait: func() error { return nil }}
	odd(t, d, func(t *testing.T, l *distlock.Client, rival distlock.Locker) {
		mustLock(t, bg, rival, "x")
		ctx, cancel := context.WithTimeout(bg, 10*time.Second)
		defer cancel()
		_, err := l.Lock(ctx, "x")
		wantErr(t, "Lock", err, distlock.ErrHeld)
		if n := d.tries.Load(); n > 200 {
			t.Errorf("%d requests in ten seconds", n)
		}
	})
}

// Who has been told that there is no answer is not there any more when a Wait comes
// back that has hung: nothing is asked for him then.
func TestNoTryAfterWaitThatHung(t *testing.T) {
	d := &oddDriver{wait: func() error { time.Sleep(5 * time.Minute); return nil }}
	odd(t, d, func(t *testing.T, l *distlock.Client, rival distlock.Locker) {
		held := mustLock(t, bg, rival, "x")
		_, err := l.Lock(bg, "x", distlock.TTL(3*time.Second))
		if err == nil || errors.Is(err, distlock.ErrHeld) || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("Lock: %v, want no answer", err)
		}
		if err := held.Unlock(bg); err != nil {
			t.Error(err)
		}
		time.Sleep(6 * time.Minute)
		if n := d.tries.Load(); n != 1 {
			t.Errorf("%d tries, want that before the wait alone", n)
		}
	})
}

// wrapped is a driver whose locks must be made before their claim can be released.
type wrapped struct {
	distlock.Driver
	t        *testing.T
	released atomic.Bool
}

type wrappedClaim struct {
	distlock.Claim
	d *wrapped
}

func (d *wrapped) Claim(r distlock.Request) distlock.Claim {
	return &wrappedClaim{d.Driver.Claim(r), d}
}

func (c *wrappedClaim) Release(ctx context.Context) error {
	c.d.released.Store(true)
	return c.Claim.Release(ctx)
}

func (d *wrapped) WrapLock(h *distlock.Handle, _ distlock.Claim) distlock.Lock {
	if d.released.Load() {
		d.t.Error("the claim of a lock was released before WrapLock")
	}
	return h
}

// Close may release a lock as soon as there is one, which may be before Lock returns.
func TestClosedBeforeLockReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &wrapped{Driver: memlock.NewDriver(memlock.NewStore(nil)), t: t}
		var l *distlock.Client
		l, err := distlock.New(d, &distlock.Options{Observer: &distlock.Observer{
			Acquired: func(distlock.Acquired) {
				go l.Close()
				time.Sleep(time.Second)
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		lock, err := l.Lock(bg, "x")
		if err != nil || lock.Err() == nil || !d.released.Load() {
			t.Errorf("Lock: %v, %v; released: %v", lock, err, d.released.Load())
		}
	})
}

func TestCauseIsNotTheError(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, l, rival *memlock.Locker) {
		mustLock(t, bg, rival, "x")
		ctx, cancel := context.WithCancelCause(bg)
		time.AfterFunc(time.Second, func() { cancel(errors.New("own cause")) })
		_, err := l.Lock(ctx, "x")
		wantErr(t, "Lock", err, context.Canceled)
		wantErr(t, "Lock", err, distlock.ErrHeld)
	})
}

// A panic that its caller survives, in an option or for want of a context, must
// leave neither a place in the line nor a call that Close waits for.
func TestPanicLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, l, _ *memlock.Locker) {
		var none context.Context
		for _, misuse := range []func(){
			func() { _, _ = l.Lock(bg, "x", nil) },
			func() { _, _ = l.TryLock(bg, "x", nil) },
			func() { _, _ = l.Lock(none, "x") },
			func() { _, _ = distlock.Inspect(none, l, "x") },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				misuse()
			}()
		}
		if _, err := l.TryLock(bg, "x"); err != nil {
			t.Error(err)
		}
		start := time.Now()
		if err := l.Close(); err != nil || time.Since(start) > 0 {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
	})
}

// hookCtx calls hook the first time it is asked for its end.
type hookCtx struct {
	context.Context
	once sync.Once
	hook func()
}

func (c *hookCtx) Err() error {
	c.once.Do(c.hook)
	return c.Context.Err()
}

type closingDriver struct {
	distlock.Driver
	closed  atomic.Bool
	badCall atomic.Bool
}

func (d *closingDriver) Close() error { d.closed.Store(true); return nil }
func (d *closingDriver) Inspect(context.Context, string) (distlock.Status, error) {
	if d.closed.Load() {
		d.badCall.Store(true)
	}
	return distlock.Status{}, nil
}
func (d *closingDriver) List(context.Context, string) ([]distlock.Status, error) { return nil, nil }

// Close closes the driver, also while a call is on its way to it.
func TestNoRequestAfterDriverClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &closingDriver{Driver: memlock.NewDriver(memlock.NewStore(nil))}
		l, err := distlock.New(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx := &hookCtx{Context: bg, hook: func() {
			go l.Close()
			time.Sleep(time.Second)
		}}
		_, _ = l.Inspect(ctx, "x")
		synctest.Wait()
		if d.badCall.Load() {
			t.Error("the driver was called after its Close")
		}
		_ = l.Close()
	})
}
