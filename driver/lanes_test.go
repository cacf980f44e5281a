package driver_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/memlock"
)

// What cannot be undone for lack of a store costs no goroutine, and a bounded number of requests.
// What is over its time is dropped and reported, and Close ends the rest in its time.
func TestUndoIsBounded(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		t.Run(fmt.Sprintf("frozen=%v", frozen), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cleaned := make(chan distlock.CleanedUp, 100_000)
				n, l, _ := faulty(t, &memlock.Options{Options: distlock.Options{
					Observer: &distlock.Observer{CleanedUp: func(e distlock.CleanedUp) { cleaned <- e }}}})
				broken := on("release", requestLost)
				if frozen {
					broken = on("release", stuck)
				}
				n.use(on("try", requestLost), broken)
				const seconds, rate = 20, 500
				most := 0
				for i := range seconds * rate {
					name := fmt.Sprint("x", i)
					_, err := l.TryLock(bg, name, distlock.TTL(10*time.Second))
					wantErr(t, "TryLock", err, errBroken)
					time.Sleep(time.Second / rate)
					most = max(most, runtime.NumGoroutine())
				}
				if most > 800 {
					t.Errorf("%d goroutines", most)
				}
				if got, limit := n.count("release"), seconds*rate; got > limit {
					t.Errorf("%d releases, want no more than %d", got, limit)
				}
				dropped := len(cleaned)
				if dropped < (seconds-11)*rate/2 {
					t.Errorf("%d are reported as dropped", dropped)
				}
				for range dropped {
					if e := <-cleaned; e.Err == nil {
						t.Errorf("%s was cleaned up in an outage", e.Name)
					}
				}
				began := time.Now()
				if err := l.Close(); err != nil || time.Since(began) > 12*time.Second {
					t.Errorf("Close: %v after %v", err, time.Since(began))
				}
				synctest.Wait()
				if left := seconds*rate - dropped - len(cleaned); left != 0 {
					t.Errorf("%d are never reported", left)
				}
			})
		})
	}
}

// A panic in a driver on a goroutine of the engine is logged, and is a failure like others.
func TestPanicsOfADriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n, l, rival := faulty(t, &memlock.Options{Options: distlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
		wrong := func(context.Context, memlock.Call, func()) (bool, error) {
			var answer []any
			return true, answer[0].(error)
		}
		lock := mustLock(t, bg, l, "x", distlock.TTL(3*time.Second))
		n.use(on("renew", wrong))
		<-lock.Done()
		wantErr(t, "Err", lock.Err(), distlock.ErrLost)
		if text := lock.Err().Error(); !strings.Contains(text, "panicked") {
			t.Errorf("the loss does not say why: %s", text)
		}
		n.use(once(on("renew", wrong)))
		lock = mustLock(t, bg, l, "y", distlock.TTL(3*time.Second))
		time.Sleep(time.Minute)
		if lock.Err() != nil {
			t.Errorf("a single panic has ended the lock: %v", lock.Err())
		}
		n.use(times(3, on("release", wrong)))
		ctx, cancel := context.WithCancel(bg)
		cancel()
		_ = lock.Unlock(ctx)
		time.Sleep(time.Second)
		mustLock(t, healthy(), rival, "y")
		if text := log.String(); !strings.Contains(text, "index out of range") || !strings.Contains(text, "fates_test.go") {
			t.Errorf("the log has no panic, or no stack:\n%s", text)
		}
	})
}

// A handler of the log that hangs while it is told of such a panic ends no lock of the batch.
func TestHangingLogOfAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		defer close(goOn)
		log := &hangingLog{handle: func(r slog.Record) {
			if r.Level == slog.LevelError {
				<-goOn
			}
		}}
		n, l, _ := faulty(t, &memlock.Options{Options: distlock.Options{Logger: slog.New(log)}})
		x, y := mustLock(t, bg, l, "x"), mustLock(t, bg, l, "y")
		n.use(once(on("renew", func(context.Context, memlock.Call, func()) (bool, error) { panic("in the driver") })))
		time.Sleep(time.Minute)
		if x.Err() != nil || y.Err() != nil {
			t.Errorf("one panic has ended a lock: %v, %v", x.Err(), y.Err())
		}
	})
}

// RenewEach and Detach pass a panic on to the goroutine that called them.
func TestPanicIsPassedOn(t *testing.T) {
	d := &oddDriver{}
	odd(t, d, func(t *testing.T, l *driver.Client, _ distlock.Locker) {
		var calls atomic.Int32
		d.renew = func() (driver.Grant, error) {
			if calls.Add(1) == 1 {
				panic("in the driver")
			}
			return driver.Grant{Token: 1, TTL: 3 * time.Second}, nil
		}
		x, y := mustLock(t, bg, l, "x", distlock.TTL(3*time.Second)), mustLock(t, bg, l, "y", distlock.TTL(3*time.Second))
		time.Sleep(time.Minute)
		if x.Err() != nil || y.Err() != nil {
			t.Errorf("one panic has ended a lock: %v, %v", x.Err(), y.Err())
		}
	})
	mustPanic(t, "in f", func() {
		_, _ = driver.Detach(t.Context(), func() (int, error) { panic("in f") })
	})
}

// A release that was applied before the driver panicked has freed the lock: its repeat, which finds
// nothing, does not make a loss of it.
func TestPanicAfterTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		for _, late := range []bool{false, true} { // the context of Unlock has ended: in the background
			ctx, cancel := context.WithCancel(bg)
			lock := mustLock(t, bg, l, "x", distlock.TTL(time.Minute))
			n.use(once(on("release", func(_ context.Context, _ memlock.Call, apply func()) (bool, error) {
				apply()
				panic("after it was applied")
			})))
			if late {
				cancel()
			}
			_ = lock.Unlock(ctx)
			time.Sleep(5 * time.Second)
			if err := lock.Unlock(bg); err != nil {
				t.Errorf("in the background: %t: Unlock: %v", late, err)
			}
			mustUnlock(t, bg, mustLock(t, bg, rival, "x"))
			cancel()
		}
	})
}

// However many callers wait for one name at a store that says "not now", all are told in the time that
// one of them goes on for.
func TestFirstLocksFailTogether(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		n.use(on("try", fails(driver.NotNow)))
		began := time.Now()
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				_, err := l.Lock(bg, "x", distlock.TTL(time.Minute))
				wantErr(t, "Lock", err, errStore)
			})
		}
		callers.Wait()
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("the last of 50 callers failed after %v", took)
		}
		n.use()
		mustLock(t, bg, l, "x")
	})
}

// For how long a store has answered "not now" counts from its first such answer, not from when it fell silent before that:
// an outage that ends while the store loads its data fails the waiter that was there at its beginning, and none behind it.
func TestNotNowAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		held := mustLock(t, healthy(), rival, "x")
		told, behind := make(chan error, 1), make(chan error, 1)
		for _, c := range []chan error{told, behind} {
			go func() { _, err := l.Lock(bg, "x", distlock.TTL(30*time.Second)); c <- err }()
			synctest.Wait()
		}
		n.use(on("try", requestLost))
		time.Sleep(25 * time.Second)
		n.use(on("try", fails(driver.NotNow)))
		wantErr(t, "the waiter", <-told, errStore)
		time.Sleep(time.Second)
		n.use()
		mustUnlock(t, healthy(), held)
		if err := <-behind; err != nil {
			t.Errorf("the one behind it: %v", err)
		}
	})
}

// All locks may be lost at once, and the application may be slow to hear of it: it is told of each, by a
// bounded number of goroutines.
func TestMassLossIsToldInTurn(t *testing.T) {
	const locks = 2000
	var told, most atomic.Int32
	o := distlock.Observer{Lost: func(distlock.Lost) {
		told.Add(1)
		most.Store(max(most.Load(), int32(runtime.NumGoroutine())))
		time.Sleep(100 * time.Millisecond)
	}}
	watched(t, o, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		for i := range locks {
			mustLock(t, bg, l, fmt.Sprint("x", i), distlock.TTL(3*time.Second), distlock.NoRenewal())
		}
		time.Sleep(10 * time.Second)
		if told.Load() != locks || most.Load() > 200 {
			t.Errorf("told of %d of %d losses, by up to %d goroutines", told.Load(), locks, most.Load())
		}
	})
}

// RenewEach leaves alone what has its answer already.
func TestRenewEachPassesOver(t *testing.T) {
	for _, unanswered := range []int{0, 1, 2} {
		batch := make([]driver.Renewal, 4)
		for i := range batch[unanswered:] {
			batch[i].Answer(driver.Grant{Token: 1}, nil)
		}
		driver.RenewEach(t.Context(), batch, func(context.Context, driver.Claim, time.Duration) (driver.Grant, error) {
			return driver.Grant{Token: 2}, nil
		})
		for i, r := range batch {
			want := int64(1)
			if i >= len(batch)-unanswered {
				want = 2
			}
			if r.Grant.Token != want {
				t.Errorf("%d to be asked for: entry %d has answer %d, want %d", unanswered, i, r.Grant.Token, want)
			}
		}
	}
}
