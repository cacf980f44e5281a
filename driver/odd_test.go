package driver_test

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
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// oddDriver lets a test replace the methods of its claims.
type oddDriver struct {
	driver.Driver
	try   func() (driver.Grant, error)
	wait  func() error
	renew func() (driver.Grant, error)
	boast func(*driver.Grant) // changes the store's own

	tries, renewals atomic.Int32
}

func (d *oddDriver) Claim(r driver.Request) driver.Claim {
	return &oddClaim{d.Driver.Claim(r), d}
}

type oddClaim struct {
	driver.Claim
	d *oddDriver
}

func (c *oddClaim) Try(ctx context.Context) (driver.Grant, error) {
	c.d.tries.Add(1)
	g, err := c.Claim.Try(ctx)
	if c.d.try != nil {
		return c.d.try()
	}
	if c.d.boast != nil {
		c.d.boast(&g)
	}
	return g, err
}

func (c *oddClaim) Wait(ctx context.Context) error {
	if c.d.wait != nil {
		return c.d.wait()
	}
	return c.Claim.Wait(ctx)
}

func (d *oddDriver) Renew(ctx context.Context, batch []driver.Renewal) {
	driver.RenewEach(ctx, batch, func(ctx context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		d.renewals.Add(1)
		if d.renew != nil {
			return d.renew()
		}
		g, err := renewOne(ctx, d.Driver, c.(*oddClaim).Claim, ttl)
		if d.boast != nil {
			d.boast(&g)
		}
		return g, err
	})
}

// odd runs f with a Locker over d and a rival that has no faults.
func odd(t *testing.T, d *oddDriver, f func(t *testing.T, l *driver.Client, rival distlock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore(nil)
		d.Driver = memlock.NewDriver(store)
		l, err := driver.New(d, nil)
		testkit.Must(t, err)
		defer func() { testkit.Should(t, l.Close()) }()
		f(t, l, open(t, store, nil))
	})
}

// An answer that is none must not become a lock, nor leave one.
func TestEmptyGrant(t *testing.T) {
	d := &oddDriver{try: func() (driver.Grant, error) { return driver.Grant{}, nil }}
	odd(t, d, func(t *testing.T, l *driver.Client, rival distlock.Locker) {
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
	d := &oddDriver{renew: func() (driver.Grant, error) { return driver.Grant{}, nil }}
	odd(t, d, func(t *testing.T, l *driver.Client, _ distlock.Locker) {
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

// A driver that breaks the rule, and returns long after its context has ended, holds up
// the goroutines that have called it and no others: locks that are held end at their
// deadline, other names go on, and Close gives up.
func TestDriverThatDoesNotReturn(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		other := mustLock(t, bg, l, "other")
		lock := mustLock(t, bg, l, "x", distlock.TTL(3*time.Second))
		hang := hangs(t)
		n.use(func(ctx context.Context, c memlock.Call, apply func()) (bool, error) {
			if c.Name == "other" {
				return false, nil
			}
			return hang(ctx, c, apply)
		})
		hanging := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			_, err := l.Lock(ctx, "y")
			hanging <- err
		}()
		<-lock.Done()
		if late := time.Since(lock.Deadline()); late > 0 {
			t.Errorf("Done closed %v after Deadline", late)
		}
		wantErr(t, "Unlock", lock.Unlock(bg), distlock.ErrLost)
		mustUnlock(t, bg, other)
		select {
		case err := <-hanging:
			t.Errorf("Lock returned %v: was the driver not called on its goroutine?", err)
		default:
		}
		start := time.Now()
		if err := l.Close(); err == nil || time.Since(start) > 12*time.Second {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
	})
}

// wrapped is a driver whose locks must be made before their claim can be released.
type wrapped struct {
	driver.Driver
	t        *testing.T
	released atomic.Bool
}

type wrappedClaim struct {
	driver.Claim
	d *wrapped
}

func (d *wrapped) Claim(r driver.Request) driver.Claim {
	return &wrappedClaim{d.Driver.Claim(r), d}
}

func (d *wrapped) Renew(ctx context.Context, batch []driver.Renewal) {
	driver.RenewEach(ctx, batch, func(ctx context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		return renewOne(ctx, d.Driver, c.(*wrappedClaim).Claim, ttl)
	})
}

func (c *wrappedClaim) Release(ctx context.Context) error {
	c.d.released.Store(true)
	return c.Claim.Release(ctx)
}

func (d *wrapped) WrapLock(h *driver.Handle, _ driver.Claim) distlock.Lock {
	if d.released.Load() {
		d.t.Error("the claim of a lock was released before WrapLock")
	}
	return h
}

// Close may release a lock as soon as there is one, which may be before Lock returns.
func TestClosedBeforeLockReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &wrapped{Driver: memlock.NewDriver(memlock.NewStore(nil)), t: t}
		var l *driver.Client
		l, err := driver.New(d, &distlock.Options{Observer: &distlock.Observer{
			Acquired: func(distlock.Acquired) {
				go l.Close()
				time.Sleep(time.Second)
			},
		}})
		testkit.Must(t, err)
		lock, err := l.Lock(bg, "x")
		if err != nil || lock.Err() == nil || !d.released.Load() {
			t.Errorf("Lock: %v, %v; released: %v", lock, err, d.released.Load())
		}
	})
}

// The cause of a context that ends a call is in its error, beside the end, but says nothing of the call itself.
func TestCauseIsInTheError(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, l, rival *memlock.Locker) {
		mustLock(t, bg, rival, "x")
		own := errors.New("own cause")
		for _, cause := range []error{own, distlock.ErrHeld, distlock.ErrClosed} {
			ctx, cancel := context.WithCancelCause(bg)
			time.AfterFunc(time.Second, func() { cancel(cause) })
			for _, name := range []string{"x", "free"} { // the second call comes after the end
				_, err := l.Lock(ctx, name)
				wantErr(t, "Lock", err, context.Canceled)
				if errors.Is(err, distlock.ErrHeld) != (name == "x") || errors.Is(err, distlock.ErrClosed) || errors.Is(err, own) != (cause == own) {
					t.Errorf("Lock of %q with the cause %q: %v", name, cause, err)
				}
				if text := "the cause of its context: " + cause.Error(); !(name == "x" && cause == distlock.ErrHeld) && !strings.HasSuffix(err.Error(), text) {
					t.Errorf("the error %q does not end in %q", err, text)
				}
			}
		}
		ctx, cancel := context.WithTimeoutCause(bg, time.Second, own)
		defer cancel()
		_, err := l.Lock(ctx, "x")
		wantErr(t, "Lock", err, context.DeadlineExceeded)
		wantErr(t, "Lock", err, own)
	})
}

// A panic that its caller survives, in an option or for want of a context, must
// leave neither a place in the line nor a call that Close waits for.
func TestPanicLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, l, _ *memlock.Locker) {
		var none context.Context
		broken := func(*distlock.CallOptions) { panic("an option") }
		for _, misuse := range []func(){
			func() { _, _ = l.Lock(bg, "x", broken) },
			func() { _, _ = l.TryLock(bg, "x", broken) },
			func() { _, _ = l.Lock(none, "x") },
			func() { _, _ = distlock.Inspect(none, l, "x") },
		} {
			mustPanic(t, "", misuse)
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
	driver.Driver
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
		l, err := driver.New(d, nil)
		testkit.Must(t, err)
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

// mute is a driver that renews, and writes the answers where the engine does not look for them.
type mute struct{ driver.Driver }

func (d mute) Renew(ctx context.Context, batch []driver.Renewal) {
	for i, r := range batch {
		batch[i].Grant, batch[i].Err = renewOne(ctx, d.Driver, r.Claim, r.TTL)
	}
}

// A renewal that was not answered has failed: the lock ends at its deadline, and is freed.
func TestRenewalWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := client(t, mute{memlock.NewDriver(memlock.NewStore(nil))}, nil)
		lock := mustLock(t, bg, l, "x", distlock.TTL(time.Minute))
		if err := lock.Extend(bg, time.Minute); err == nil || !strings.Contains(err.Error(), "a renewal had no answer") {
			t.Errorf("Extend: %v", err)
		}
		deadline := lock.Deadline()
		<-lock.Done()
		wantErr(t, "Err", lock.Err(), distlock.ErrLost)
		if now := time.Now(); now.After(deadline) || !strings.Contains(lock.Err().Error(), "a renewal had no answer") {
			t.Errorf("ended %v after its deadline: %v", now.Sub(deadline), lock.Err())
		}
		time.Sleep(time.Minute) // until its lease is over
		mustUnlock(t, bg, mustLock(t, bg, l, "x"))
	})
}

// copying is a driver that answers by copies of what it was given, and more than once.
type copying struct {
	driver.Driver
	copies []driver.Renewal
}

func (d *copying) Renew(ctx context.Context, batch []driver.Renewal) {
	for _, r := range batch {
		d.copies = append(d.copies, r, r)
		r.Answer(renewOne(ctx, d.Driver, r.Claim, r.TTL))
	}
	d.copies[0].Answer(driver.Grant{}, distlock.ErrLost)
}

// The first answer to a renewal counts, by whatever copy. Another one, even after the batch, changes nothing: a panic on a
// goroutine of the driver would end the process.
func TestRenewalIsAnsweredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &copying{Driver: memlock.NewDriver(memlock.NewStore(nil))}
		lock := mustLock(t, bg, client(t, d, nil), "x", distlock.TTL(time.Minute))
		testkit.Must(t, lock.Extend(bg, 2*time.Minute))
		d.copies[1].Answer(driver.Grant{}, distlock.ErrLost)
		if left := time.Until(lock.Deadline()); lock.Err() != nil || left < time.Minute {
			t.Errorf("%v left: %v", left, lock.Err())
		}
		time.Sleep(time.Hour) // of renewals in the background
		mustUnlock(t, bg, lock)
	})
}
