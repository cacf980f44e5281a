package driver_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// brittle is a driver of which one method panics, once what it does is done.
type brittle struct {
	driver.Driver
	method atomic.Value // its name
}

func newBrittle(store *memlock.Store, method string) *brittle {
	d := &brittle{Driver: memlock.NewDriver(store)}
	d.method.Store(method)
	return d
}

type brittleClaim struct {
	driver.Claim
	d *brittle
}

func (d *brittle) do(method string) {
	if d.method.Load() == method {
		panic("in " + method)
	}
}

func (d *brittle) Claim(r driver.Request) driver.Claim {
	d.do("claim")
	return &brittleClaim{d.Driver.Claim(r), d}
}

func (c *brittleClaim) Try(ctx context.Context) (driver.Grant, error) {
	defer c.d.do("try")
	return c.Claim.Try(ctx)
}

func (c *brittleClaim) Wait(ctx context.Context) error {
	defer c.d.do("wait")
	return c.Claim.Wait(ctx)
}

func (c *brittleClaim) Release(ctx context.Context) error {
	c.d.do("release")
	return c.Claim.Release(ctx)
}

func (d *brittle) Renew(ctx context.Context, batch []driver.Renewal) {
	d.do("renew")
	for i := range batch {
		batch[i].Answer(renewOne(ctx, d.Driver, batch[i].Claim.(*brittleClaim).Claim, batch[i].TTL))
	}
}

func (d *brittle) WrapLock(h *driver.Handle, _ driver.Claim) distlock.Lock {
	d.do("wraplock")
	return h
}

func (d *brittle) Inspect(context.Context, string) (st distlock.Status, _ error) {
	d.do("inspect")
	return st, nil
}
func (d *brittle) List(context.Context, string) ([]distlock.Status, error) {
	d.do("list")
	return nil, nil
}
func (d *brittle) Break(context.Context, string, int64) error        { d.do("break"); return nil }
func (d *brittle) Sweep(context.Context, time.Duration) (int, error) { d.do("sweep"); return 0, nil }

// A panic of a driver in a call of the user's is the error of the call: the call may be one of a goroutine that nobody can
// recover on, such as those of patterns.Semaphore. It is logged with its stack, and leaves nothing.
func TestPanicInACall(t *testing.T) {
	lock := func(l *driver.Client) error { _, err := l.Lock(bg, "x", distlock.TTL(time.Second)); return err }
	held := func(f func(l distlock.Lock) error) func(*driver.Client) error {
		return func(l *driver.Client) error {
			lock, err := l.Lock(bg, "y")
			if err == nil {
				err = f(lock)
			}
			return err
		}
	}
	for method, call := range map[string]func(*driver.Client) error{
		"claim":    lock,
		"try":      lock,
		"wraplock": lock,
		"release":  held(func(l distlock.Lock) error { return l.Unlock(bg) }),
		"renew":    held(func(l distlock.Lock) error { return l.Extend(bg, time.Hour) }),
		"inspect":  func(l *driver.Client) error { _, err := l.Inspect(bg, "x"); return err },
		"list":     func(l *driver.Client) error { _, err := l.List(bg, "x"); return err },
		"break":    func(l *driver.Client) error { return l.Break(bg, "x", 1) },
		"sweep":    func(l *driver.Client) error { _, err := l.Sweep(bg, time.Hour); return err },
	} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				store := memlock.NewStore(nil)
				rival := open(t, store, nil)
				d := newBrittle(store, method)
				l := client(t, d, &distlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				if err := call(l); err == nil || !strings.Contains(err.Error(), "the driver has panicked: in "+method) {
					t.Errorf("the error is %v", err)
				}
				synctest.Wait()
				if text := log.String(); !strings.Contains(text, "in "+method) || !strings.Contains(text, "panic_test.go") {
					t.Errorf("the log has no panic, or no stack:\n%s", text)
				}
				d.method.Store("")
				time.Sleep(time.Minute) // until the clean-up is over
				testkit.Must(t, l.Close())
				for _, name := range []string{"x", "y"} {
					if _, err := rival.TryLock(bg, name); err != nil {
						t.Errorf("something is left: %v", err)
					}
				}
			})
		})
	}
}

// A waiter that is not woken, because its Wait panics, looks again.
func TestPanicInWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore(nil)
		held := mustLock(t, bg, open(t, store, nil), "x")
		time.AfterFunc(time.Minute, func() { testkit.Should(t, held.Unlock(bg)) })
		mustLock(t, bg, client(t, newBrittle(store, "wait"), nil), "x")
	})
}
