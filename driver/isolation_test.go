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
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// TryLock must not say that a name is held because others are asking for it: the store
// has not said so.
func TestTryLockBesideRequestsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		n.use(on("try", func(context.Context, memlock.Call, func()) (bool, error) {
			time.Sleep(2 * time.Second)
			return true, errBroken
		}))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := l.Lock(bg, "x")
				wantErr(t, "Lock", err, errBroken)
			})
		}
		synctest.Wait()
		_, err := l.TryLock(bg, "x")
		wantErr(t, "TryLock", err, errBroken)
		if errors.Is(err, distlock.ErrHeld) {
			t.Errorf("TryLock: %v", err)
		}
		wg.Wait()
	})
}

// Calls of TryLock that come faster than the store answers do not queue without end: where a request was sent after
// a call began, its refusal is an answer to that call as well.
func TestTryLocksShareARefusal(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		h := mustLock(t, bg, rival, "hot")
		const answer = 10 * time.Millisecond
		n.use(on("try", late(answer)))
		before := n.count("try")
		var calls sync.WaitGroup
		for range 200 {
			calls.Go(func() {
				began := time.Now()
				_, err := l.TryLock(bg, "hot")
				wantErr(t, "TryLock", err, distlock.ErrHeld)
				if held, ok := errors.AsType[*distlock.HeldError](err); !ok || held.Remaining < time.Until(h.Deadline())-2*answer {
					t.Errorf("%v does not tell what the holder has left", err)
				}
				if took := time.Since(began); took > 2*answer {
					t.Errorf("a TryLock took %v, where an answer takes %v", took, answer)
				}
			})
		}
		calls.Wait()
		if tries := n.count("try") - before; tries != 16 {
			t.Errorf("%d requests for 200 calls, want the first eight and the next", tries)
		}
		mustUnlock(t, bg, h)
		_, err := l.TryLock(bg, "hot") // what others were told before does not count
		testkit.Should(t, err)
	})
}

// Wherever there is an ErrHeld, there is a HeldError.
func TestHeldErrorEverywhere(t *testing.T) {
	mustHave := func(t *testing.T, what string, err error, least, most time.Duration) {
		t.Helper()
		var held *distlock.HeldError
		switch {
		case !errors.Is(err, distlock.ErrHeld) || !errors.As(err, &held):
			t.Errorf("%s: %v has no HeldError", what, err)
		case held.Remaining < least || held.Remaining > most:
			t.Errorf("%s: the lease runs for %v, want %v to %v", what, held.Remaining, least, most)
		case strings.Count(err.Error(), distlock.ErrHeld.Error()) != 1:
			t.Errorf("%s: %v", what, err)
		}
	}
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		mustLock(t, bg, rival, "x", distlock.TTL(time.Minute), distlock.NoRenewal())
		_, err := l.TryLock(bg, "x")
		mustHave(t, "the store's refusal", err, time.Minute, time.Minute)
		ctx, cancel := context.WithTimeout(bg, 6*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 2 { // the first in the process, and the one behind it
			wg.Go(func() {
				_, err := l.Lock(ctx, "x")
				wantErr(t, "Lock", err, context.DeadlineExceeded)
				mustHave(t, "a Lock that waited", err, 50*time.Second, time.Minute)
			})
		}
		time.Sleep(5 * time.Second)
		_, err = l.TryLock(bg, "x")
		mustHave(t, "beside a queue", err, time.Second, 56*time.Second) // the waiter's own lease may end first
		wg.Wait()
	})
	for _, refusal := range []error{distlock.ErrHeld, fmt.Errorf("by the boss: %w", distlock.ErrHeld)} {
		d := &oddDriver{try: func() (driver.Grant, error) { return driver.Grant{}, refusal }}
		odd(t, d, func(t *testing.T, l *driver.Client, _ distlock.Locker) {
			_, err := l.TryLock(bg, "x")
			mustHave(t, "a driver without HeldError", err, 0, 0)
		})
	}
}

// A name may pass from one to another while a process is further back in its queue, and is
// told nothing. What its calls return then names no holder of the past.
func TestRefusalOfThePastNamesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := &distlock.HeldError{Remaining: time.Minute, Holder: "of the past", Token: 7}
		d := &oddDriver{Driver: memlock.NewDriver(memlock.NewStore(nil)), try: func() (driver.Grant, error) { return driver.Grant{}, refusal }}
		l := client(t, d, nil)
		ctx, cancel := context.WithTimeout(bg, 6*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		namesNobody := func(call string, err error) {
			held, ok := errors.AsType[*distlock.HeldError](err)
			if !ok || held.Holder != "" || held.Token != 0 || held.Remaining > time.Minute {
				t.Errorf("%s: %+v (%v)", call, held, err)
			}
		}
		wg.Go(func() {
			_, err := l.Lock(ctx, "x")
			namesNobody("a Lock that waited", err)
			if text := err.Error(); !strings.Contains(text, `held by another ("of the past", token 7) `) || !strings.HasSuffix(text, "s ago") {
				t.Errorf("the text does not tell of a holder some time ago: %s", text)
			}
		})
		time.Sleep(50 * time.Millisecond)
		_, err := l.TryLock(bg, "x")
		namesNobody("TryLock beside a queue", err)
		wg.Wait()
	})
}

// A caller that keeps trying a name whose requests hang must not pile them up.
func TestHangingNameIsBounded(t *testing.T) {
	for _, op := range []string{"try", "release"} {
		t.Run(op, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
				var mu sync.Mutex
				running, most := 0, 0
				n.use(func(ctx context.Context, c memlock.Call, apply func()) (bool, error) {
					if c.Name != "stuck" {
						return false, nil
					}
					if c.Op == "try" && op == "release" {
						return true, errBroken // to be undone
					}
					mu.Lock()
					running++
					most = max(most, running)
					mu.Unlock()
					defer func() { mu.Lock(); running--; mu.Unlock() }()
					return stuck(ctx, c, apply)
				})
				for range 1000 {
					ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
					start := time.Now()
					_, err := l.TryLock(ctx, "stuck")
					if err == nil || errors.Is(err, distlock.ErrHeld) || time.Since(start) > 100*time.Millisecond {
						t.Fatalf("TryLock: %v after %v", err, time.Since(start))
					}
					_, err = l.Lock(ctx, "stuck")
					if err == nil || errors.Is(err, distlock.ErrHeld) {
						t.Fatalf("Lock: %v", err)
					}
					cancel()
					time.Sleep(10 * time.Millisecond)
				}
				mu.Lock()
				peak := most
				mu.Unlock()
				if peak > 8 {
					t.Errorf("%d requests for one name at the same time, want 8 at the most", peak)
				}
				start := time.Now()
				_, err := l.TryLock(bg, "stuck")
				if err == nil || errors.Is(err, distlock.ErrHeld) || time.Since(start) > 11*time.Second {
					t.Errorf("TryLock without an end of its own: %v after %v", err, time.Since(start))
				}
				mustLock(t, bg, l, "other")
				n.use()
				time.Sleep(2 * time.Minute)
				lock := mustLock(t, bg, l, "stuck")
				mustUnlock(t, bg, lock)
				if st, _ := distlock.Inspect(bg, rival, "stuck"); st.Held || st.Waiters != 0 {
					t.Errorf("something is left: %+v", st)
				}
			})
		})
	}
}

// Locks whose renewals hang must not take along others, however many they are.
func TestManyHangingRenewals(t *testing.T) {
	for what, healthyTTL := range map[string]time.Duration{"same TTL": time.Minute, "shorter TTL": 3 * time.Second} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := new(network)
				store := memlock.NewStore(&memlock.StoreOptions{Intercept: n.intercept})
				l := client(t, plain{memlock.NewDriver(store)}, nil)
				n.use(on("renew", stuckNames))
				var locks []distlock.Lock
				for i := range 300 {
					mustLock(t, bg, l, fmt.Sprint("stuck", i), distlock.TTL(time.Minute))
					if i%6 == 5 {
						locks = append(locks, mustLock(t, bg, l, fmt.Sprint("x", i), distlock.TTL(healthyTTL)))
					}
				}
				time.Sleep(3 * time.Minute)
				for _, lock := range locks {
					testkit.Must(t, lock.Err())
				}
			})
		})
	}
}

// shards is a driver of several servers: what a batch asks of the one that hangs
// fails when the context ends, and the rest of it is renewed.
type shards struct {
	driver.Driver
	mu     sync.Mutex
	frozen map[driver.Claim]bool
	mixed  int // batches that asked both kinds
}

func (d *shards) Claim(r driver.Request) driver.Claim {
	c := d.Driver.Claim(r)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frozen[c] = strings.HasPrefix(r.Name, "stuck")
	return c
}

func (d *shards) Renew(ctx context.Context, batch []driver.Renewal) {
	d.mu.Lock()
	var stuck []*driver.Renewal
	for i := range batch {
		r := &batch[i]
		if d.frozen[r.Claim] {
			stuck = append(stuck, r)
		} else {
			r.Answer(renewOne(ctx, d.Driver, r.Claim, r.TTL))
		}
	}
	if len(stuck) > 0 && len(stuck) < len(batch) {
		d.mixed++
	}
	d.mu.Unlock()
	if len(stuck) > 0 {
		<-ctx.Done()
	}
	for _, r := range stuck {
		r.Answer(driver.Grant{}, ctx.Err())
	}
}

// What has failed to be renewed delays the others once, and not again.
func TestFailedRenewalsAreKeptApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &shards{Driver: memlock.NewDriver(memlock.NewStore(nil)), frozen: make(map[driver.Claim]bool)}
		l := client(t, d, nil)
		var locks []distlock.Lock
		for i := range 300 {
			mustLock(t, bg, l, fmt.Sprint("stuck", i))
			ttl := 30 * time.Second >> (i % 6) // so that some have as little time left as one that fails
			locks = append(locks, mustLock(t, bg, l, fmt.Sprint("x", i), distlock.TTL(ttl)))
		}
		time.Sleep(2 * time.Minute)
		d.mu.Lock()
		mixed := d.mixed
		d.mu.Unlock()
		if mixed != 1 {
			t.Errorf("%d batches with locks of both shards, want the first one only", mixed)
		}
		for _, lock := range locks {
			testkit.Must(t, lock.Err())
		}
	})
}

// The release of lost locks that hangs must not hold up that of others.
func TestHangingCleanUp(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		for i := range 100 {
			mustLock(t, bg, l, fmt.Sprint("stuck", i), distlock.TTL(3*time.Second))
		}
		lock := mustLock(t, bg, l, "x", distlock.TTL(5*time.Second), distlock.NoRenewal())
		released := make(chan time.Time, 1)
		n.use(func(ctx context.Context, c memlock.Call, apply func()) (bool, error) {
			if c.Op == "release" && c.Name == "x" {
				released <- time.Now()
				return false, nil
			}
			return stuck(ctx, c, apply)
		})
		<-lock.Done()
		start := time.Now()
		if d := (<-released).Sub(start); d > time.Second {
			t.Errorf("the entry of a lost lock was released %v after its end", d)
		}
	})
}
