package driver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/memlock"
)

// stuckNames hangs every request for a name that begins with "stuck".
func stuckNames(ctx context.Context, c memlock.Call, apply func()) (bool, error) {
	if !strings.HasPrefix(c.Name, "stuck") {
		return false, nil
	}
	return stuck(ctx, c, apply)
}

// leaveStuck has n calls to TryLock fail on names that hang, so that each is to be undone.
func leaveStuck(t *testing.T, l distlock.Locker, n int, opts ...distlock.Option) {
	ctx, cancel := context.WithTimeout(bg, 10*time.Millisecond)
	defer cancel()
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			if _, err := l.TryLock(ctx, fmt.Sprint("stuck", i), opts...); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("TryLock of a name that hangs: %v", err)
			}
		})
	}
	calls.Wait()
}

// A thousand names of a server that hangs delay the clean-up of others no more than one does: neither
// that of a claim that has failed and was not removed at once, nor that of one that has hung for once.
func TestHangingNamesDelayNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		n.use(stuckNames)
		leaveStuck(t, l, 1000, distlock.TTL(time.Hour))
		n.use(stuckNames, once(on("try", replyLost)), times(2, on("release", requestLost)))
		_, err := l.TryLock(bg, "failed", distlock.TTL(time.Hour))
		wantErr(t, "TryLock", err, errBroken)
		began := time.Now()
		mustLock(t, healthy(), rival, "failed")
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("what has failed was removed after %v", took)
		}
		time.Sleep(3 * time.Minute) // each of those that hang had its first call
		n.use(stuckNames, once(on("try", appliedAndStuck)))
		_, err = l.TryLock(bg, "hung", distlock.TTL(20*time.Second))
		if _, silent := errors.AsType[*driver.NoAnswer](err); !silent {
			t.Fatalf("TryLock: %v", err)
		}
		began = time.Now()
		for { // a rival that waits would be served when the lease has ended
			if _, err = rival.TryLock(healthy(), "hung"); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("what has hung once was removed after %v", took)
		}
	})
}

// What is over its time and hangs is dropped, and not called once more, one after the other.
func TestOverTimeAndHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names = 900
		cleaned := make(chan distlock.CleanedUp, names)
		n, l, _ := faulty(t, &memlock.Options{Options: distlock.Options{
			Observer: &distlock.Observer{CleanedUp: func(e distlock.CleanedUp) { cleaned <- e }}}})
		n.use(stuckNames)
		leaveStuck(t, l, names, distlock.TTL(10*time.Second))
		began := time.Now()
		for range names {
			<-cleaned
		}
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("the last is dropped after %v, with a TTL of 10 s", took)
		}
	})
}

// A waiter with a short TTL outlives a request that hangs, and leaves nothing of it. A store that
// always takes long is waited for all the same.
func TestShortWaiterLooksAgain(t *testing.T) {
	for what, hung := range map[string]rule{"lost": stuck, "applied": appliedAndStuck} {
		bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
			held := mustLock(t, healthy(), rival, "x", distlock.TTL(time.Hour))
			done := make(chan error, 1)
			go func() {
				lock, err := l.Lock(bg, "x", distlock.TTL(6*time.Second))
				if err == nil {
					err = lock.Unlock(bg)
				}
				done <- err
			}()
			synctest.Wait()
			n.use(once(on("try", hung)))
			mustUnlock(t, healthy(), held)
			if err := <-done; err != nil {
				t.Errorf("%s: %v", what, err)
			}
			time.Sleep(10 * time.Second)
			if st, err := distlock.Inspect(healthy(), rival, "x"); err != nil || st.Held || st.Waiters != 0 {
				t.Errorf("left: %+v, %v", st, err)
			}
		})
	}
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		mustLock(t, healthy(), rival, "x", distlock.TTL(5*time.Second), distlock.NoRenewal())
		n.use(on("try", late(1500*time.Millisecond)))
		mustLock(t, bg, l, "x", distlock.TTL(3*time.Second))
	})
}

// Wake-ups in vain make no storm of requests, however far apart they are; few of them slow nothing.
func TestWakesInVain(t *testing.T) {
	for _, every := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, 20 * time.Millisecond} {
		d := &oddDriver{wait: func() error { time.Sleep(every); return nil }}
		free := time.Now().Add(time.Hour)
		d.try = func() (driver.Grant, error) {
			if time.Now().Before(free) {
				return driver.Grant{}, &distlock.HeldError{Remaining: time.Minute}
			}
			return driver.Grant{Token: 1, TTL: time.Minute}, nil
		}
		odd(t, d, func(t *testing.T, l *driver.Client, _ distlock.Locker) {
			free = time.Now().Add(10 * time.Second)
			mustLock(t, bg, l, "x", distlock.TTL(time.Minute))
			if n := d.tries.Load(); n > 200 {
				t.Errorf("%d tries in ten seconds with a wake-up every %v", n, every)
			}
			d.tries.Store(0)
			free = time.Now().Add(5 * every)
			mustLock(t, bg, l, "y", distlock.TTL(time.Minute))
			if late := time.Since(free); late > every {
				t.Errorf("acquired %v late", late)
			}
		})
	}
}

// The error of a Wait reaches the caller as that of the store, also if it looks like the end of a
// context.
func TestErrorOfWait(t *testing.T) {
	tooLong := fmt.Errorf("subscribe: %w", context.DeadlineExceeded)
	d := &oddDriver{
		try:  func() (driver.Grant, error) { return driver.Grant{}, &distlock.HeldError{Remaining: time.Minute} },
		wait: func() error { return &driver.Fault{Fate: driver.Answered, Err: tooLong} },
	}
	odd(t, d, func(t *testing.T, l *driver.Client, _ distlock.Locker) {
		_, err := l.Lock(bg, "x")
		if errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), tooLong.Error()) {
			t.Errorf("Lock: %v", err)
		}
		// A refusal is a hint, and Try decides.
		d.wait = func() error { return distlock.ErrHeld }
		d.tries.Store(0)
		ctx, cancel := context.WithTimeout(bg, 10*time.Second)
		defer cancel()
		_, err = l.Lock(ctx, "x")
		wantErr(t, "Lock", err, context.DeadlineExceeded)
		if n := d.tries.Load(); n < 50 || n > 200 {
			t.Errorf("%d tries in ten seconds", n)
		}
	})
}

// CheckOptions judges options as New does.
func TestCheckOptions(t *testing.T) {
	d := memlock.NewDriver(memlock.NewStore(nil))
	for _, o := range []*distlock.Options{nil, {TTL: -1}, {TokenBase: -1}, {Holder: strings.Repeat("h", 256)}, {TTL: time.Second}} {
		l, want := driver.New(d, o)
		if got := driver.CheckOptions(d, o); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("CheckOptions: %v, New: %v", got, want)
		}
		if want == nil {
			_ = l.Close()
		}
	}
}
