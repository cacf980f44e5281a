package driver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/memlock"
)

// A release waits for the answer to a renewal for as long as it takes, so a process that
// was stopped meanwhile releases as well. An entry that lives by a session has no TTL to
// end with.
func TestReleaseAfterLateRenewal(t *testing.T) {
	d := new(oddDriver)
	odd(t, d, func(t *testing.T, l *driver.Client, rival distlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(time.Hour))
		d.renew = func() (driver.Grant, error) {
			time.Sleep(30 * time.Second)
			return driver.Grant{}, errBroken
		}
		go func() { _ = lock.Extend(bg, time.Hour) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		wantErr(t, "Unlock", lock.Unlock(ctx), context.DeadlineExceeded)
		began := time.Now()
		mustLock(t, bg, rival, "x")
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("free after %v", took)
		}
	})
}

// Unlock is bounded as a whole, not the parts of it.
func TestUnlockBesideRenewalIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		lock := mustLock(t, bg, l, "x")
		n.use(on("renew", func(context.Context, memlock.Call, func()) (bool, error) {
			time.Sleep(4 * time.Second)
			return true, errBroken
		}), on("release", stuck))
		go func() { _ = lock.Extend(bg, time.Minute) }()
		synctest.Wait()
		began := time.Now()
		if err := lock.Unlock(bg); err == nil || time.Since(began) > 5*time.Second+50*time.Millisecond {
			t.Errorf("Unlock: %v after %v", err, time.Since(began))
		}
	})
}

// A claim without wake-ups tries as often as its place in the queue needs it.
func TestPollKeepsThePlace(t *testing.T) {
	var tries []time.Time
	d := &oddDriver{try: func() (driver.Grant, error) {
		tries = append(tries, time.Now())
		return driver.Grant{}, &driver.Held{NoWake: true}
	}}
	odd(t, d, func(t *testing.T, l *driver.Client, _ distlock.Locker) {
		const ttl = 120 * time.Millisecond
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err := l.Lock(ctx, "x", distlock.TTL(ttl))
		wantErr(t, "Lock", err, distlock.ErrHeld)
		for i, at := range tries[1:] {
			if pause := at.Sub(tries[i]); pause > ttl/3 {
				t.Errorf("try %d comes %v after the one before", i+1, pause)
			}
		}
	})
}

// A refusal counts also if it comes when the context has just ended.
func TestRefusedAtTheEndOfTheContext(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		mustLock(t, healthy(), rival, "x")
		n.use(on("try", slow(110*time.Millisecond)))
		calls := map[string]func(context.Context, string, ...distlock.Option) (distlock.Lock, error){"Lock": l.Lock, "TryLock": l.TryLock}
		for what, call := range calls {
			ctx, cancel := context.WithTimeout(bg, 100*time.Millisecond)
			_, err := call(ctx, "x")
			cancel()
			wantErr(t, what, err, context.DeadlineExceeded)
			wantErr(t, what, err, distlock.ErrHeld)
		}
	})
}

// lateTimer is a context on a busy machine: its deadline has passed, its timer is late, and it
// does not say so yet.
type lateTimer struct {
	context.Context
	deadline time.Time
}

func (c lateTimer) Deadline() (time.Time, bool) { return c.deadline, true }

// The end of a caller's context is told as such, also if another timer is the first to fire.
func TestTimerOfTheContextIsLate(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		n.use(on("try", stuck))
		_, err := l.Lock(lateTimer{bg, time.Now().Add(100 * time.Millisecond)}, "x")
		wantErr(t, "Lock", err, context.DeadlineExceeded)
	})
}

// A client library gives its sockets the deadline of the call. The end of that is the end of the caller's context if that has
// come, no answer if it was the call's own, and else an error of the store like another.
func TestDeadlineOfASocket(t *testing.T) {
	d := &oddDriver{}
	odd(t, d, func(t *testing.T, l *driver.Client, _ distlock.Locker) {
		d.try = func() (driver.Grant, error) { return driver.Grant{}, os.ErrDeadlineExceeded }
		if _, err := l.TryLock(bg, "x"); !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a timeout of the library: %v", err)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		d.try = func() (driver.Grant, error) {
			time.Sleep(time.Second + time.Millisecond)
			return driver.Grant{}, os.ErrDeadlineExceeded
		}
		_, err := l.TryLock(ctx, "y")
		wantErr(t, "TryLock", err, context.DeadlineExceeded)
	})
}

// steppedBack is a context with a deadline of the wall clock, which passes, and is to come again:
// the clock was set back right after it was looked at for the nth time.
type steppedBack struct {
	context.Context
	looks, n int
}

func (c *steppedBack) Deadline() (time.Time, bool) {
	if c.looks++; c.looks == c.n {
		return time.Now(), true
	}
	return time.Now().Add(time.Hour), true
}

// A Lock never returns without a lock and without an error, whenever the clock is set back.
func TestClockSetBackAtTheEndOfTheContext(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		held := mustLock(t, healthy(), rival, "held")
		try := func(name string) {
			for i := range 20 {
				ctx, cancel := context.WithTimeout(bg, time.Second)
				lock, err := l.Lock(&steppedBack{Context: ctx, n: i}, name)
				cancel()
				if lock == nil && err == nil {
					t.Errorf("Lock of %s has returned nothing, after look %d at the deadline", name, i)
				}
			}
		}
		try("held")
		n.use(on("try", func(context.Context, memlock.Call, func()) (bool, error) { return true, context.DeadlineExceeded }))
		try("free")
		mustUnlock(t, bg, held)
	})
}

// The end of a bound inside of a driver does not look like that of the caller's context.
func TestShorterBoundOfADriver(t *testing.T) {
	tooLong := fmt.Errorf("dial: %w", context.DeadlineExceeded)
	d := &oddDriver{renew: func() (driver.Grant, error) { return driver.Grant{}, tooLong }}
	odd(t, d, func(t *testing.T, l *driver.Client, _ distlock.Locker) {
		lock := mustLock(t, bg, l, "x")
		d.try = func() (driver.Grant, error) { return driver.Grant{}, tooLong }
		_, tryErr := l.TryLock(bg, "y")
		extendErr := lock.Extend(bg, time.Minute)
		<-lock.Done()
		for what, err := range map[string]error{"TryLock": tryErr, "Extend": extendErr, "Err": lock.Err()} {
			if errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), tooLong.Error()) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// Calls of Extend that have no time for an answer do not put off the renewals.
func TestHastyExtendsBesideRenewals(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(30*time.Second))
		began := time.Now()
		n.use(on("renew", late(50*time.Millisecond)))
		first := lock.Deadline()
		for lock.Err() == nil && lock.Deadline().Equal(first) {
			ctx, cancel := context.WithTimeout(bg, time.Millisecond)
			_ = lock.Extend(ctx, time.Second)
			cancel()
			time.Sleep(200 * time.Millisecond)
		}
		if took := time.Since(began); lock.Err() != nil || took > 11*time.Second {
			t.Errorf("after %v: renewed until %v after the first deadline, error %v", took, lock.Deadline().Sub(first), lock.Err())
		}
	})
}

// Extends by less than the TTL put off no renewal, however often they come.
func TestShortExtendsBesideRenewals(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, l, _ *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(30*time.Second))
		for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(time.Second) {
			wantErr(t, "Extend", lock.Extend(bg, 5*time.Second), nil)
			if left := time.Until(lock.Deadline()); left < 18*time.Second {
				t.Fatalf("after %v, %v are left of a lease of 30 s that is renewed", time.Since(began), left)
			}
		}
	})
}

// A release goes on for as long as the entry may last, also by an Extend without an answer.
func TestReleaseAfterLostExtend(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(3*time.Second))
		n.use(on("renew", replyLost), on("release", requestLost))
		wantErr(t, "Extend", lock.Extend(bg, time.Hour), errBroken)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if err := lock.Unlock(ctx); err == nil {
			t.Error("Unlock: nil in an outage")
		}
		time.Sleep(time.Minute)
		n.use()
		began := time.Now()
		mustLock(t, healthy(), rival, "x")
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("free %v after the outage", took)
		}
	})
}

// A store that says nothing ends what an operator asks about one name. A list may take what it takes.
func TestOperatorsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		n.use(on("inspect", stuck), on("break", stuck), on("list", stuck))
		for what, ask := range map[string]func() error{
			"Inspect": func() error { _, err := l.Inspect(bg, "x"); return err },
			"Break":   func() error { return l.Break(bg, "x", 1) },
		} {
			began := time.Now()
			err := ask()
			if silent := new(driver.NoAnswer); !errors.As(err, &silent) || time.Since(began) != 10*time.Second {
				t.Errorf("%s: %v after %v", what, err, time.Since(began))
			}
		}
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		_, err := l.List(ctx, "")
		wantErr(t, "List", err, context.DeadlineExceeded)
	})
}
