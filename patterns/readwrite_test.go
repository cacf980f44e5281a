package patterns_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

func TestReadWrite(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		read, write := patterns.ReadWrite(l, 3)
		otherRead, otherWrite := patterns.ReadWrite(rival, 3)

		first, second := mustLock(t, bg, read, "x"), mustLock(t, bg, otherRead, "x")
		if _, ok := distlock.As[*driver.Handle](first); !ok {
			t.Error("As does not find the lock inside of a reader's")
		}
		if first.Name() != "x" || first.Token() <= 0 || second.Token() <= first.Token() {
			t.Errorf("readers of %q have the tokens %d and %d", first.Name(), first.Token(), second.Token())
		}
		_, err := write.TryLock(bg, "x")
		wantErr(t, "a writer beside readers", err, distlock.ErrHeld)
		third, err := read.TryLock(bg, "x")
		if err != nil {
			t.Fatalf("a third reader: %v", err)
		}
		_, err = read.TryLock(bg, "x")
		wantErr(t, "one reader too many", err, distlock.ErrHeld)
		for _, lock := range []distlock.Lock{first, second, third} {
			mustUnlock(t, bg, lock)
		}
		w, err := otherWrite.TryLock(bg, "x")
		if err != nil {
			t.Fatalf("a writer: %v", err)
		}
		if w.Name() != "x" || w.Token() <= third.Token() {
			t.Errorf("a writer of %q has the token %d after %d", w.Name(), w.Token(), third.Token())
		}
		if err := w.Extend(bg, 2*time.Minute); err != nil || time.Until(w.Deadline()) < time.Minute {
			t.Errorf("Extend: %v, %v left", err, time.Until(w.Deadline()))
		}
		for _, locker := range []distlock.Locker{read, write, otherRead, otherWrite} {
			_, err := locker.TryLock(bg, "x")
			wantErr(t, "beside a writer", err, distlock.ErrHeld)
		}
		time.Sleep(time.Hour)
		if err := w.Err(); err != nil {
			t.Errorf("a writer was not renewed: %v", err)
		}
		for range 2 {
			mustUnlock(t, bg, w)
		}
		wantErr(t, "Err", w.Err(), distlock.ErrUnlocked)
		mustLock(t, bg, read, "x")

		_, err = write.TryLock(bg, "x", distlock.NoRenewal())
		wantErr(t, "a writer with a fixed term, where the name is held", err, distlock.ErrInvalid)
	})
}

// Readers that come and go without a gap do not keep a writer out, nor writers a reader.
func TestReadWriteStarvesNobody(t *testing.T) {
	for _, crowd := range []string{"readers", "writers"} {
		t.Run(crowd, func(t *testing.T) {
			bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
				ctx, cancel := context.WithCancel(bg)
				many, _ := patterns.ReadWrite(l, 5)
				_, alone := patterns.ReadWrite(rival, 5)
				if crowd == "writers" {
					_, many = patterns.ReadWrite(l, 5)
					alone, _ = patterns.ReadWrite(rival, 5)
				}
				var wg sync.WaitGroup
				for i := range 5 {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * 200 * time.Millisecond)
						for ctx.Err() == nil {
							if lock, err := many.Lock(ctx, "x"); err == nil {
								time.Sleep(time.Second)
								_ = lock.Unlock(bg)
							}
						}
					})
				}
				time.Sleep(time.Minute + 100*time.Millisecond)
				began := time.Now()
				lock := mustLock(t, bg, alone, "x")
				if took := time.Since(began); took > 5*time.Second+100*time.Millisecond {
					t.Errorf("waited for %v among %s that take a second each", took, crowd)
				}
				_ = lock.Unlock(bg)
				cancel()
				wg.Wait()
			})
		})
	}
}

// slotTokens returns the tokens of the slots that are held.
func slotTokens(t *testing.T, l distlock.Locker) map[string]int64 {
	t.Helper()
	all, err := distlock.List(bg, l, "x/")
	testkit.Must(t, err)
	tokens := make(map[string]int64)
	for _, st := range all {
		if st.Name != "x/next" {
			tokens[st.Name] = st.Token
		}
	}
	return tokens
}

// A writer that loses its place while it waits begins anew. Otherwise two would each
// have some of the slots, and wait for the others.
func TestReadWriteLosesItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		read, write := patterns.ReadWrite(l, 3)
		_, otherWrite := patterns.ReadWrite(rival, 3)
		reader := mustLock(t, bg, read, "x")
		synctest.Wait()
		mine := slotTokens(t, l)
		tokens := make(chan int64, 2)
		for _, w := range []distlock.Locker{write, otherWrite} {
			go func() {
				lock := mustLock(t, bg, w, "x")
				tokens <- lock.Token()
				time.Sleep(time.Second)
				mustUnlock(t, bg, lock)
			}()
			time.Sleep(time.Second)
		}
		before := slotTokens(t, l)
		testkit.Must(t, distlock.Break(bg, rival, "x/next", 0))
		time.Sleep(time.Minute)
		for slot, token := range slotTokens(t, l) {
			if kept := token == before[slot]; kept != (token == mine[slot]) {
				t.Errorf("%s has token %d, had %d, and the reader's slot is %v: the writer kept slots without its place", slot, token, before[slot], mine)
			}
		}
		_ = reader.Unlock(bg)
		first, second := <-tokens, <-tokens
		if second <= first {
			t.Errorf("the tokens %d and %d", first, second)
		}
		time.Sleep(2 * time.Second)
	})
}

// A writer loses its lock with any of its slots, and is told.
func TestReadWriteLoss(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		_, write := patterns.ReadWrite(l, 3)
		lock := mustLock(t, bg, write, "x")
		testkit.Must(t, distlock.Break(bg, rival, "x/1", 0))
		<-lock.Done()
		synctest.Wait()
		_, otherWrite := patterns.ReadWrite(rival, 3)
		if next, err := otherWrite.TryLock(bg, "x"); err != nil {
			t.Errorf("after the loss: %v", err)
		} else {
			testkit.Must(t, next.Unlock(bg))
		}
		wantErr(t, "Err", lock.Err(), distlock.ErrLost)
		wantErr(t, "Extend", lock.Extend(bg, time.Minute), distlock.ErrLost)
		wantErr(t, "Unlock", lock.Unlock(bg), distlock.ErrLost)
		if _, err := otherWrite.TryLock(bg, "x"); err != nil {
			t.Errorf("after the Unlock of a lost lock: %v", err)
		}
	})
}

// slow returns a Locker on a store that takes a millisecond for a request.
func slow(t *testing.T) *memlock.Locker {
	t.Helper()
	return open(t, memlock.NewStore(&memlock.StoreOptions{Intercept: func(_ context.Context, _ memlock.Call, apply func()) error {
		time.Sleep(time.Millisecond)
		apply()
		return nil
	}}))
}

// What a call needed for itself is gone when it returns: a TryLock that comes then is not refused for that.
func TestSlotsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slow(t)
		read, write := patterns.ReadWrite(l, 3)
		try := func(after string, l distlock.Locker) distlock.Lock {
			t.Helper()
			lock, err := l.TryLock(bg, "x")
			if err != nil {
				t.Fatalf("TryLock after %s: %v", after, err)
			}
			return lock
		}
		fail := func(l distlock.Locker) {
			t.Helper()
			ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
			defer cancel()
			_, err := l.Lock(ctx, "x")
			_, tried := l.TryLock(bg, "x")
			for what, err := range map[string]error{"Lock": err, "TryLock": tried} {
				wantErr(t, what, err, distlock.ErrHeld)
				if strings.Contains(err.Error(), "re-entrant") {
					t.Errorf("%s of what is held several times: %v", what, err)
				}
			}
		}
		first := mustLock(t, bg, read, "x")
		second := try("a Lock", read)
		fail(write)
		third := try("a writer that got nothing", read)
		fail(read)
		mustUnlock(t, bg, second)
		mustUnlock(t, bg, try("readers that got nothing", read))
		mustUnlock(t, bg, first)
		mustUnlock(t, bg, third)
		w := try("readers", write)
		fail(read)
		mustUnlock(t, bg, w)
		mustUnlock(t, bg, try("a reader that got nothing", write))

		s := patterns.Semaphore(l, 2)
		permits := []distlock.Lock{mustLock(t, bg, s, "x"), try("a permit", s)}
		fail(s)
		got := make(chan distlock.Lock)
		go func() { got <- mustLock(t, bg, s, "x") }()
		time.Sleep(50 * time.Millisecond)
		for _, p := range permits {
			go mustUnlock(t, bg, p)
		}
		third = <-got
		mustUnlock(t, bg, try("a Lock that has waited", s))
		mustUnlock(t, bg, third)
	})
}

// A release that hangs does not keep the lock from the one that has got it.
func TestReadWriteReleaseHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		l := open(t, memlock.NewStore(&memlock.StoreOptions{Intercept: func(_ context.Context, c memlock.Call, apply func()) error {
			if c.Op == "release" {
				<-back
			}
			apply()
			return nil
		}}))
		defer close(back)
		read, _ := patterns.ReadWrite(l, 3)
		began := time.Now()
		mustLock(t, bg, read, "x")
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("Lock took %v", took)
		}
	})
}
