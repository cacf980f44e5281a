package patterns_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	"github.com/distlock-go/distlock/patterns"
)

// permit returns the permit that a lock of a Semaphore is.
func permit(t *testing.T, lock distlock.Lock) *patterns.Permit {
	t.Helper()
	p, ok := distlock.As[*patterns.Permit](lock)
	if !ok {
		t.Fatal("As finds no Permit")
	}
	return p
}

func TestSemaphore(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		const n = 3
		s, r := patterns.Semaphore(l, n), patterns.Semaphore(rival, n)
		var held []distlock.Lock
		taken := make(map[int]bool)
		for i := range n {
			lock := mustLock(t, bg, []distlock.Locker{s, r}[i%2], "x")
			if _, ok := distlock.As[*driver.Handle](lock); !ok || lock.Name() != "x" {
				t.Errorf("the permit is called %q; As sees through it: %v", lock.Name(), ok)
			}
			held = append(held, lock)
			taken[permit(t, lock).Slot()] = true
		}
		if len(taken) != n || !taken[0] || !taken[n-1] {
			t.Errorf("the slots are %v", taken)
		}
		_, err := s.TryLock(bg, "x")
		wantErr(t, "TryLock of one too many", err, distlock.ErrHeld)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err = r.Lock(ctx, "x")
		wantErr(t, "Lock of one too many", err, context.DeadlineExceeded)
		wantErr(t, "Lock of one too many", err, distlock.ErrHeld)
		mustLock(t, bg, s, "y")

		back := permit(t, held[1])
		mustUnlock(t, bg, back)
		again, err := s.TryLock(bg, "x")
		if err != nil {
			t.Fatalf("TryLock of a permit that has come back: %v", err)
		}
		if p := permit(t, again); p.Slot() != back.Slot() || p.Token() <= back.Token() {
			t.Errorf("slot %d with token %d after slot %d with token %d", p.Slot(), p.Token(), back.Slot(), back.Token())
		}
	})
}

func TestSemaphoreInvalid(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		for _, tc := range []struct {
			n    int
			name string
		}{{0, "x"}, {-1, "x"}, {2, ""}, {2, strings.Repeat("x", distlock.MaxName)}} {
			_, err := patterns.Semaphore(l, tc.n).Lock(bg, tc.name)
			wantErr(t, "Lock", err, distlock.ErrInvalid)
			_, err = patterns.Semaphore(l, tc.n).TryLock(bg, tc.name)
			wantErr(t, "TryLock", err, distlock.ErrInvalid)
			read, write := patterns.ReadWrite(l, tc.n)
			for _, locker := range []distlock.Locker{read, write} {
				_, err = locker.Lock(bg, tc.name)
				wantErr(t, "Lock of ReadWrite", err, distlock.ErrInvalid)
				_, err = locker.TryLock(bg, tc.name)
				wantErr(t, "TryLock of ReadWrite", err, distlock.ErrInvalid)
			}
		}
		s := patterns.Semaphore(l, 2)
		done, cancel := context.WithCancel(bg)
		cancel()
		for _, take := range []func(context.Context, string, ...distlock.Option) (distlock.Lock, error){s.Lock, s.TryLock} {
			_, err := take(done, "x")
			wantErr(t, "with a context that is done", err, context.Canceled)
		}
		testkit.Should(t, s.Close())
		_, err := s.Lock(bg, "x")
		wantErr(t, "Lock after Close", err, distlock.ErrClosed)
	})
}

// As many as there are permits hold at a time, never more, and all get their turn.
func TestSemaphoreCrowd(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		const n, workers, turns = 4, 24, 10
		var mu sync.Mutex
		var holding, most, grants int
		through := false
		slots := make(map[int]int64)
		began := time.Now()
		var wg sync.WaitGroup
		for i := range workers {
			s := patterns.Semaphore([]distlock.Locker{l, rival}[i%2], n)
			wg.Go(func() {
				for range turns {
					p := permit(t, mustLock(t, bg, s, "x"))
					mu.Lock()
					holding++
					grants++
					most = max(most, holding)
					if p.Token() <= slots[p.Slot()] {
						t.Errorf("slot %d got token %d after %d", p.Slot(), p.Token(), slots[p.Slot()])
					}
					slots[p.Slot()] = p.Token()
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					holding--
					mu.Unlock()
					mustUnlock(t, bg, p)
				}
				// Until the first of them is through, all permits are wanted all the time.
				mu.Lock()
				defer mu.Unlock()
				if seconds := int(time.Since(began) / time.Second); !through && grants < n*seconds {
					t.Errorf("permits lay idle: %d were granted in %d s, want %d", grants, seconds, n*seconds)
				}
				through = true
			})
		}
		wg.Wait()
		if most != n {
			t.Errorf("%d held at a time, want %d", most, n)
		}
	})
}

// Waiters are served in the order in which they came.
func TestSemaphoreOrder(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		s, r := patterns.Semaphore(l, 2), patterns.Semaphore(rival, 2)
		held := []distlock.Lock{mustLock(t, bg, s, "x"), mustLock(t, bg, r, "x")}
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				lock := mustLock(t, bg, []distlock.Locker{s, r}[i%2], "x")
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Second)
				_ = lock.Unlock(bg)
			})
			time.Sleep(time.Second)
		}
		_ = held[0].Unlock(bg)
		wg.Wait()
		_ = held[1].Unlock(bg)
		for i, got := range order {
			if got != i {
				t.Fatalf("served in the order %v", order)
			}
		}
	})
}

// A call that was given up leaves nothing: not in the queue, and not at the slots.
func TestSemaphoreGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		s, r := patterns.Semaphore(l, 2), patterns.Semaphore(rival, 2)
		held := []distlock.Lock{mustLock(t, bg, s, "x"), mustLock(t, bg, s, "x")}
		for range 3 {
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			_, err := r.Lock(ctx, "x")
			cancel()
			wantErr(t, "Lock", err, context.DeadlineExceeded)
		}
		for _, lock := range held {
			_ = lock.Unlock(bg)
		}
		time.Sleep(time.Millisecond)
		if left, err := distlock.List(bg, l, ""); err != nil || len(left) != 0 {
			t.Errorf("left in the store: %v, %v", left, err)
		}
		for range 2 {
			if _, err := s.TryLock(bg, "x"); err != nil {
				t.Errorf("TryLock: %v", err)
			}
		}
	})
}

// One slot that cannot be reached, as on a server of its own, does not keep the others
// from being used.
func TestSemaphoreOneSlotFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore(&memlock.StoreOptions{Intercept: func(_ context.Context, c memlock.Call, apply func()) error {
			if c.Name == "x/1" && c.Op == "try" {
				return errWork
			}
			apply()
			return nil
		}})
		s := patterns.Semaphore(open(t, store), 3)
		held := []distlock.Lock{mustLock(t, bg, s, "x"), mustLock(t, bg, s, "x")}
		_, err := s.TryLock(bg, "x")
		wantErr(t, "TryLock", err, distlock.ErrHeld)
		time.AfterFunc(time.Minute, func() { _ = held[0].Unlock(bg) })
		mustLock(t, bg, s, "x")
	})
}

// A slot of which the server is away at first is waited for again later.
func TestSemaphoreOneSlotRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		store := memlock.NewStore(&memlock.StoreOptions{Intercept: func(_ context.Context, c memlock.Call, apply func()) error {
			if away.Load() && c.Name == "x/1" && c.Op == "try" {
				return errWork
			}
			apply()
			return nil
		}})
		s := patterns.Semaphore(open(t, store), 2)
		read, _ := patterns.ReadWrite(open(t, store), 2)
		for what, l := range map[string]distlock.Locker{"permit": s, "reader": read} {
			held := []distlock.Lock{mustLock(t, bg, l, "x"), mustLock(t, bg, l, "x")}
			if slot := held[0].(interface{ Unwrap() distlock.Lock }).Unwrap(); slot.Name() == "x/1" {
				slices.Reverse(held)
			}
			away.Store(true)
			time.AfterFunc(time.Minute, func() { away.Store(false) })
			time.AfterFunc(2*time.Minute, func() { _ = held[1].Unlock(bg) })
			began := time.Now()
			next := mustLock(t, bg, l, "x")
			if took := time.Since(began); took > 2*time.Minute+2*time.Second {
				t.Errorf("the next %s took %v, want it soon after the slot that had failed was free, after 2m", what, took)
			}
			mustUnlock(t, bg, next)
			mustUnlock(t, bg, held[0])
		}
	})
}

// hangingSlot returns a store where one slot hangs, as on a server that is frozen.
func hangingSlot() *memlock.Store {
	return hangingStore(func(c memlock.Call) bool { return c.Name == "x/1" && c.Op != "release" })
}

// That a slot was seen to be held is told also where another hangs.
func TestSemaphoreHeldIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := patterns.Semaphore(open(t, hangingSlot()), 2)
		held := mustLock(t, bg, s, "x")
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err := s.Lock(ctx, "x")
		wantErr(t, "Lock", err, context.DeadlineExceeded)
		wantErr(t, "Lock", err, distlock.ErrHeld)
		mustUnlock(t, bg, held)
	})
}

// A slot that hangs, as on a server that is frozen, holds up no call that can have another.
func TestSemaphoreOneSlotHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := patterns.Semaphore(open(t, hangingSlot()), 3)
		began := time.Now()
		held := []distlock.Lock{mustLock(t, bg, s, "x")}
		second, err := s.TryLock(bg, "x")
		testkit.Must(t, err)
		if took := time.Since(began); took > time.Second {
			t.Errorf("two permits took %v, although their slots answer at once", took)
		}
		time.AfterFunc(time.Minute, func() { _ = second.Unlock(bg) })
		held = append(held, mustLock(t, bg, s, "x"))
		if took := time.Since(began); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("the next permit took %v, want it as soon as one came back, after 1m", took)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err = s.TryLock(ctx, "x") // the slot that hangs may be free
		wantErr(t, "TryLock", err, context.DeadlineExceeded)
		wantErr(t, "TryLock", err, distlock.ErrHeld)
		for _, lock := range held {
			mustUnlock(t, bg, lock)
		}
	})
}

// TestSilentStoreOfManySlots: a store that is silent costs the time of one request, however many slots there are.
func TestSilentStoreOfManySlots(t *testing.T) {
	permit := func(l distlock.Locker) distlock.Locker { return patterns.Semaphore(l, 1000) }
	for what, call := range map[string]func(distlock.Locker) error{
		"TryLock": func(l distlock.Locker) error { _, err := permit(l).TryLock(bg, "x"); return err },
		"Lock":    func(l distlock.Locker) error { _, err := permit(l).Lock(bg, "x"); return err },
		"read": func(l distlock.Locker) error {
			read, _ := patterns.ReadWrite(l, 100)
			_, err := read.Lock(bg, "x")
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := call(openFailing(t, hangingStore(func(c memlock.Call) bool { return c.Name != "x/next" })))
			if took := time.Since(began); err == nil || took > 12*time.Second {
				t.Errorf("%s took %v, want little more than ten seconds: %v", what, took, err)
			}
		})
	}
}

// TestSlotsStayHeld: a store that is lost after it has said that the slots are held does not make that untold.
func TestSlotsStayHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost atomic.Bool
		l := open(t, memlock.NewStore(&memlock.StoreOptions{Intercept: func(_ context.Context, c memlock.Call, apply func()) error {
			if c.Name == "x/next" {
				lost.Store(true)
			}
			if lost.Load() && c.Op != "release" {
				return &driver.Fault{Fate: driver.NotSent, Err: errors.New("connection refused")}
			}
			apply()
			return nil
		}}))
		s := patterns.Semaphore(l, 2)
		for range 2 {
			mustLock(t, bg, s, "x", distlock.NoRenewal())
		}
		_, err := s.Lock(bg, "x")
		wantErr(t, "Lock", err, distlock.ErrHeld)
		if !strings.Contains(fmt.Sprint(err), "connection refused") {
			t.Error(err)
		}
	})
}

// A panic of an option is the caller's to see. In a goroutine of the Semaphore it would end the process.
func TestSemaphoreOptionPanics(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		read, write := patterns.ReadWrite(l, 2)
		for _, s := range []distlock.Locker{patterns.Semaphore(l, 2), read, write} {
			for _, take := range []func(context.Context, string, ...distlock.Option) (distlock.Lock, error){s.Lock, s.TryLock} {
				func() {
					defer func() {
						if recover() == nil {
							t.Error("the caller has not seen the panic of its option")
						}
					}()
					_, _ = take(bg, "x", func(*distlock.CallOptions) { panic("in an option") })
				}()
			}
			mustUnlock(t, bg, mustLock(t, bg, s, "x"))
		}
	})
}

// A panic of a driver is an error of its call: in a goroutine of a pattern it would end the process.
func TestDriverPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in atomic.Value // the operation that panics
		in.Store("try")
		l := open(t, memlock.NewStore(&memlock.StoreOptions{Intercept: func(_ context.Context, c memlock.Call, apply func()) error {
			if c.Op == in.Load() {
				panic("in the driver")
			}
			apply()
			return nil
		}}))
		read, write := patterns.ReadWrite(l, 2)
		for _, s := range []distlock.Locker{patterns.Semaphore(l, 2), read, write} {
			if _, err := s.Lock(bg, "x"); err == nil || !strings.Contains(err.Error(), "the driver has panicked: in the driver") {
				t.Errorf("Lock: %v", err)
			}
		}
		in.Store("")
		set, err := patterns.LockAll(bg, l, []string{"a", "b"})
		testkit.Must(t, err)
		capped := mustLock(t, bg, patterns.MaxHold(l, time.Second), "c")
		in.Store("release")
		<-capped.Done()
		time.Sleep(time.Minute)
		if err := set.Unlock(bg); err == nil {
			t.Error("Unlock says that the names are free")
		}
		in.Store("")
	})
}

// TestSlotsOutlastNotNow: a store that cannot serve for now is asked again, as by a plain Lock.
func TestSlotsOutlastNotNow(t *testing.T) {
	for what, wrap := range map[string]func(distlock.Locker) distlock.Locker{
		"Semaphore": func(l distlock.Locker) distlock.Locker { return patterns.Semaphore(l, 2) },
		"ReadWrite": func(l distlock.Locker) distlock.Locker { read, _ := patterns.ReadWrite(l, 2); return read },
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			l := wrap(open(t, memlock.NewStore(&memlock.StoreOptions{Intercept: func(_ context.Context, _ memlock.Call, apply func()) error {
				if time.Since(began) < 2*time.Second {
					return &driver.Fault{Fate: driver.NotNow, Err: errors.New("a replica becomes the master")}
				}
				apply()
				return nil
			}})))
			lock, err := l.Lock(bg, "x")
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			mustUnlock(t, bg, lock)
		})
	}
}

// A name is too long whether or not it is contended: those of its slots and of its queue have to fit, too.
func TestSemaphoreOverReentrant(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		ctx, s := patterns.WithOwner(bg), patterns.Semaphore(patterns.Reentrant(l), 2)
		for range 2 {
			mustLock(t, ctx, s, "x")
		}
		if _, err := s.TryLock(ctx, "x"); !errors.Is(err, distlock.ErrHeld) {
			t.Errorf("a third permit of two: %v", err)
		}
	})
}

func TestSemaphoreLongName(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		for n, longest := range map[int]int{1: 507, 10000: 507, 10001: 506} {
			name := strings.Repeat("a", longest)
			_, err := patterns.Semaphore(l, n).TryLock(bg, name+"a")
			wantErr(t, "TryLock of a name that is too long", err, distlock.ErrInvalid)
			lock := mustLock(t, bg, patterns.Semaphore(l, n), name)
			if n == 1 {
				_, err = patterns.Semaphore(rival, n).TryLock(bg, name)
				wantErr(t, "TryLock of the longest name", err, distlock.ErrHeld)
			}
			mustUnlock(t, bg, lock)
		}
	})
}

// A refusal tells of the slot that may be free first.
func TestSemaphoreTellsOfTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		for _, ttl := range []time.Duration{time.Minute, time.Second, time.Hour} {
			mustLock(t, bg, patterns.Semaphore(l, 3), "x", distlock.TTL(ttl), distlock.NoRenewal())
		}
		for range 10 { // they are asked in any order
			_, err := patterns.Semaphore(rival, 3).TryLock(bg, "x")
			var held *distlock.HeldError
			if !errors.As(err, &held) || held.Remaining > time.Second {
				t.Fatalf("told %+v, want a second at the most", held)
			}
		}
	})
}
