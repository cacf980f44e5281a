package driver_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
)

var bg = context.Background()

// bubble runs f in virtual time, with a Locker that may meet faults and a rival.
func bubble(t *testing.T, f func(t *testing.T, n *network, l, rival *memlock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n, l, rival := faulty(t, nil)
		f(t, n, l, rival)
	})
}

func TestArguments(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		for what, call := range map[string]func() (distlock.Lock, error){
			"empty name":    func() (distlock.Lock, error) { return l.Lock(bg, "") },
			"long name":     func() (distlock.Lock, error) { return l.Lock(bg, strings.Repeat("a", 513)) },
			"invalid UTF-8": func() (distlock.Lock, error) { return l.TryLock(bg, "a\xff") },
			"zero TTL":      func() (distlock.Lock, error) { return l.Lock(bg, "x", distlock.TTL(0)) },
			"negative TTL":  func() (distlock.Lock, error) { return l.Lock(bg, "x", distlock.TTL(-time.Second)) },
			"endless TTL":   func() (distlock.Lock, error) { return l.Lock(bg, "x", distlock.TTL(100*distlock.MaxTTL)) },
			"long holder": func() (distlock.Lock, error) {
				return l.Lock(bg, "x", distlock.Holder(strings.Repeat("h", 256)))
			},
		} {
			lock, err := call()
			if lock != nil {
				t.Errorf("%s: got a lock", what)
			}
			wantErr(t, what, err, distlock.ErrInvalid)
		}
		done, cancel := context.WithCancel(bg)
		cancel()
		_, err := l.Lock(done, "x")
		wantErr(t, "done context", err, context.Canceled)
		var none context.Context
		mustPanic(t, "lock of a nil context", func() { _, _ = l.Lock(none, "x") })
		mustPanic(t, "do of a nil Locker: ", func() { _ = distlock.Do(bg, nil, "x", func(context.Context) error { return nil }) })
		mustPanic(t, "do of a nil function: ", func() { _ = distlock.Do(bg, l, "x", nil) })
		mustPanic(t, "run under a nil Lock: ", func() { _ = distlock.Run(bg, nil, func(context.Context) error { return nil }) })
		mustPanic(t, "inspect of a nil context", func() { _, _ = l.Inspect(none, "x") })
		if n := n.count("try"); n != 0 {
			t.Errorf("%d requests were sent", n)
		}
	})
}

// An option that is nil, as a condition may leave it, changes nothing.
func TestNilOption(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, l, _ *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", nil, distlock.TTL(time.Second), nil)
		if left := time.Until(lock.Deadline()); left > time.Second {
			t.Errorf("the lock lasts for %v, want the TTL of the option beside it", left)
		}
		mustUnlock(t, bg, lock)
	})
}

// The grant may be under way in either direction when the caller goes away.
func TestCancelRacesGrant(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		n.use(on("try", slow(2*time.Millisecond)))
		for range 1000 {
			ctx, cancel := context.WithTimeout(bg, rand.N(4*time.Millisecond)+1)
			lock, err := l.Lock(ctx, "x")
			cancel()
			switch {
			case err == nil && lock.Err() == nil:
				mustUnlock(t, bg, lock)
			case lock != nil || !errors.Is(err, context.DeadlineExceeded):
				t.Fatalf("got %v and %v", lock, err)
			}
			time.Sleep(3 * time.Millisecond)
			probe, err := rival.TryLock(healthy(), "x")
			if err != nil {
				t.Fatalf("a cancelled Lock left the name busy: %v", err)
			}
			mustUnlock(t, healthy(), probe)
		}
	})
}

func TestHangingTry(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		n.use(on("try", stuck))
		ctx, cancel := context.WithTimeout(bg, 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := l.Lock(ctx, "x")
		wantErr(t, "Lock", err, context.DeadlineExceeded)
		if d := time.Since(start); d < 100*time.Millisecond || d > 150*time.Millisecond {
			t.Errorf("Lock returned after %v, want 50 ms after its context's end at the latest", d)
		}
		_, err = l.Lock(bg, "y")
		if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, distlock.ErrHeld) {
			t.Errorf("a backend that does not answer gave %v", err)
		}
	})
}

// A cancelled Lock waits a moment for the reply that is on its way, since its outcome is
// then known, and no longer. The grant is undone in both cases.
func TestReplyAfterCancel(t *testing.T) {
	for _, reply := range []time.Duration{10 * time.Millisecond, time.Minute} {
		t.Run(fmt.Sprint("reply after ", reply), func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
				const cancelled = 400 * time.Millisecond
				n.use(on("try", func(ctx context.Context, _ memlock.Call, apply func()) (bool, error) {
					apply()
					select {
					case <-time.After(cancelled + reply):
						return true, nil
					case <-ctx.Done():
						return true, ctx.Err()
					}
				}))
				ctx, cancel := context.WithTimeout(bg, cancelled)
				defer cancel()
				start := time.Now()
				_, err := l.Lock(ctx, "x")
				wantErr(t, "Lock", err, context.DeadlineExceeded)
				if errors.Is(err, distlock.ErrHeld) {
					t.Errorf("nobody held the name: %v", err)
				}
				if d := time.Since(start) - cancelled; d != min(reply, 20*time.Millisecond) {
					t.Errorf("Lock returned %v after its context's end", d)
				}
				synctest.Wait()
				if _, err := rival.TryLock(healthy(), "x"); err != nil {
					t.Errorf("TryLock after Lock has returned: %v", err)
				}
			})
		})
	}
}

func TestLostMessages(t *testing.T) {
	for what, fault := range map[string]rule{"request": requestLost, "reply": replyLost} {
		t.Run(what+" of try", func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
				n.use(on("try", once(fault)))
				_, err := l.Lock(bg, "x")
				wantErr(t, "Lock", err, errBroken)
				synctest.Wait()
				if _, err := rival.TryLock(bg, "x"); err != nil {
					t.Errorf("the failed Lock left something: %v", err)
				}
			})
		})
		t.Run(what+" of release", func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
				lock := mustLock(t, bg, l, "x")
				n.use(on("release", once(fault)))
				if err := lock.Unlock(bg); err != nil {
					t.Errorf("Unlock: %v", err)
				}
				if _, err := rival.TryLock(bg, "x"); err != nil {
					t.Errorf("still held: %v", err)
				}
			})
		})
		t.Run(what+" of renewal", func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
				lock := mustLock(t, bg, l, "x", distlock.TTL(3*time.Second))
				before := lock.Deadline()
				n.use(on("renew", once(fault)))
				time.Sleep(1001 * time.Millisecond)
				if !lock.Deadline().Equal(before) {
					t.Error("an unconfirmed renewal moved the deadline")
				}
				time.Sleep(20 * time.Second)
				if err := lock.Err(); err != nil {
					t.Errorf("one failed renewal lost the lock: %v", err)
				}
			})
		})
	}
}

func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		note := func(what string) { mu.Lock(); seen = append(seen, what); mu.Unlock() }
		o := &memlock.Options{Options: distlock.Options{Observer: &distlock.Observer{
			Acquired:  func(e distlock.Acquired) { note(fmt.Sprintf("acquired after %v, %d tries", e.Wait, e.Tries)) },
			Contended: func(distlock.Contended) { note("contended") },
			Renewed:   func(e distlock.Renewed) { note(fmt.Sprintf("renewed: %v", e.Err)) },
			Lost:      func(e distlock.Lost) { note(fmt.Sprintf("lost after %v", e.Held)) },
			Released:  func(e distlock.Released) { note(fmt.Sprintf("released after %v: %v", e.Held, e.Err)) },
			CleanedUp: func(e distlock.CleanedUp) { note(fmt.Sprintf("undone: %v", e.Err)) },
		}}}
		n, l, rival := faulty(t, o)
		other := mustLock(t, healthy(), rival, "x")
		time.AfterFunc(500*time.Millisecond, func() { _ = other.Unlock(healthy()) })
		lock := mustLock(t, bg, l, "x", distlock.TTL(3*time.Second))
		time.Sleep(1500 * time.Millisecond)
		mustUnlock(t, bg, lock)
		n.use(on("try", once(replyLost)))
		_, _ = l.Lock(bg, "x")
		synctest.Wait()
		mustLock(t, bg, l, "x", distlock.TTL(time.Second), distlock.NoRenewal())
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		want := "[contended acquired after 500ms, 2 tries renewed: <nil> released after 1.5s: <nil> " +
			"undone: <nil> acquired after 0s, 1 tries lost after 985ms]"
		if got := fmt.Sprint(seen); got != want {
			t.Errorf("observed\n%s, want\n%s", got, want)
		}
	})
}
