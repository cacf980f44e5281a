package patterns_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

// A stuck holder is told after nine tenths of the cap, and its name is free at the cap.
func TestMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		const longest = 10 * time.Minute
		stuck := mustLock(t, bg, patterns.MaxHold(l, longest), "x")
		began := time.Now()
		if _, ok := distlock.As[*driver.Handle](stuck); !ok {
			t.Error("As does not see through MaxHold")
		}
		free := make(chan time.Time)
		go func() {
			mustLock(t, bg, rival, "x")
			free <- time.Now()
		}()
		told := began.Add(longest * 9 / 10)
		time.Sleep(time.Until(told) - time.Millisecond)
		if err := stuck.Err(); err != nil || stuck.Deadline().After(told) {
			t.Errorf("before the end: error %v, deadline %v after the grant", err, stuck.Deadline().Sub(began))
		}
		wantErr(t, "Extend beyond the cap", stuck.Extend(bg, time.Second), distlock.ErrInvalid)
		<-stuck.Done()
		if now := time.Now(); !now.Equal(told) {
			t.Errorf("told after %v, want %v", now.Sub(began), told.Sub(began))
		}
		wantErr(t, "Err when told", stuck.Err(), distlock.ErrLost)
		wantErr(t, "Extend when told", stuck.Extend(bg, time.Second), distlock.ErrLost)
		if at := <-free; at.Before(began.Add(longest)) || at.After(began.Add(longest+time.Millisecond)) {
			t.Errorf("free after %v, want %v", at.Sub(began), longest)
		}
		wantErr(t, "Unlock after the cap", stuck.Unlock(bg), distlock.ErrLost)
		wantErr(t, "Err after that", stuck.Err(), distlock.ErrLost)
	})
}

// A holder that heeds the call frees the name at once.
func TestMaxHoldDo(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		m := patterns.MaxHold(l, time.Minute)
		began := time.Now()
		err := distlock.Do(bg, m, "x", func(ctx context.Context) error {
			<-ctx.Done()
			if lock, err := rival.TryLock(bg, "x"); err == nil {
				t.Errorf("token %d was granted while the function ends its work", lock.Token())
			}
			return nil
		})
		wantErr(t, "Do", err, distlock.ErrLost)
		if took := time.Since(began); took != 54*time.Second {
			t.Errorf("the context ended after %v", took)
		}
		if lock, err := rival.TryLock(bg, "x"); err != nil {
			t.Errorf("after Do: %v", err)
		} else {
			_ = lock.Unlock(bg)
		}
	})
}

// Locks that are held for less are as without a cap.
func TestMaxHoldUnnoticed(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		m := patterns.MaxHold(l, time.Hour)
		lock := mustLock(t, bg, m, "x", distlock.TTL(time.Minute))
		if left := time.Until(lock.Deadline()); left > time.Minute || left < 59*time.Second {
			t.Errorf("a lease of a minute has %v left", left)
		}
		testkit.Should(t, lock.Extend(bg, 2*time.Minute))
		for range 2 {
			mustUnlock(t, bg, lock)
		}
		wantErr(t, "Err", lock.Err(), distlock.ErrUnlocked)
		wantErr(t, "Extend", lock.Extend(bg, time.Second), distlock.ErrUnlocked)
		select {
		case <-lock.Done():
		default:
			t.Error("Done is open after Unlock")
		}

		lost := mustLock(t, bg, m, "x")
		testkit.Must(t, distlock.Break(bg, rival, "x", 0))
		<-lost.Done()
		wantErr(t, "Err of a lock that was broken", lost.Err(), distlock.ErrLost)
		wantErr(t, "its Unlock", lost.Unlock(bg), distlock.ErrLost)

		busy := mustLock(t, bg, rival, "x")
		_, err := m.TryLock(bg, "x")
		wantErr(t, "TryLock", err, distlock.ErrHeld)
		_ = busy.Unlock(bg)
		_, err = patterns.MaxHold(l, 0).TryLock(bg, "x")
		wantErr(t, "a cap of 0", err, distlock.ErrInvalid)

		_, err = m.Lock(bg, "x", distlock.TTL(time.Hour+1), distlock.NoRenewal())
		wantErr(t, "a fixed term beyond the cap", err, distlock.ErrInvalid)
		_, err = patterns.OncePer(bg, m, "x", 2*time.Hour, func(context.Context) error { t.Error("the job was run"); return nil })
		wantErr(t, "a period beyond the cap", err, distlock.ErrInvalid)
	})
}

// Each Unlock is bounded by its own context, and a later one learns the outcome.
func TestMaxHoldUnlockAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		store := memlock.NewStore(&memlock.StoreOptions{Intercept: func(_ context.Context, c memlock.Call, apply func()) error {
			if c.Op == "release" {
				<-release // or the background is as fast as the look at the ended context
			}
			apply()
			return nil
		}})
		l, rival := open(t, store), open(t, store)
		lock := mustLock(t, bg, patterns.MaxHold(l, time.Minute), "x")
		ended, cancel := context.WithCancel(bg)
		cancel()
		wantErr(t, "Unlock with an ended context", lock.Unlock(ended), context.Canceled)
		close(release)
		if err := lock.Unlock(bg); err != nil {
			t.Errorf("Unlock again: %v", err)
		}
		mustLock(t, bg, rival, "x")
	})
}

// A fixed term of the default TTL may not outlast the cap either, and leaves nothing.
func TestMaxHoldOfTheDefaultTerm(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		_, err := patterns.MaxHold(l, 10*time.Second).Lock(bg, "x", distlock.NoRenewal()) // 30 s
		wantErr(t, "Lock", err, distlock.ErrInvalid)
		synctest.Wait()
		mustLock(t, bg, rival, "x")
	})
}
