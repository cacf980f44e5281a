package driver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

func TestStat(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		mustLock(t, bg, rival, "busy")
		ctx, cancel := context.WithCancel(bg)
		for range 3 {
			go func() { _, _ = l.Lock(ctx, "busy") }()
		}
		mustLock(t, bg, l, "fixed", distlock.TTL(time.Second), distlock.NoRenewal())
		mustLock(t, bg, l, "x", distlock.TTL(time.Minute))
		short := mustLock(t, bg, l, "y", distlock.TTL(6*time.Second))
		synctest.Wait()
		if st := l.Stat(); st.Held != 3 || st.Waiting != 3 || st.Lost != 0 || st.LeastLeft != time.Until(short.Deadline()) {
			t.Errorf("%+v", st)
		}
		n.use(on("renew", once(requestLost)))
		time.Sleep(5 * time.Second)
		if st := l.Stat(); st.Held != 2 || st.Lost != 1 || st.FailedRenewals != 1 {
			t.Errorf("after a failed renewal and the end of a fixed term: %+v", st)
		}
		cancel()
		synctest.Wait()
		testkit.Should(t, l.Close())
		if st := l.Stat(); st.Held != 0 || st.Waiting != 0 || st.LeastLeft != 0 {
			t.Errorf("after Close: %+v", st)
		}
	})
}

type requestKey struct{}

// Events have the context of their caller, and tell of calls that failed and of how close
// a renewal was.
func TestEvents(t *testing.T) {
	var failed []distlock.Failed
	var renewed []distlock.Renewed
	contexts := 0
	from := func(ctx context.Context) {
		if ctx.Value(requestKey{}) == "r1" {
			contexts++
		}
	}
	o := distlock.Observer{
		Acquired:  func(e distlock.Acquired) { from(e.Ctx) },
		Contended: func(e distlock.Contended) { from(e.Ctx) },
		Failed:    func(e distlock.Failed) { failed = append(failed, e); from(e.Ctx) },
		Renewed:   func(e distlock.Renewed) { renewed = append(renewed, e) },
		Released:  func(e distlock.Released) { from(e.Ctx) },
	}
	watched(t, o, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		ctx := context.WithValue(bg, requestKey{}, "r1")
		lock := mustLock(t, ctx, l, "x", distlock.TTL(3*time.Second))
		time.Sleep(1500 * time.Millisecond)
		testkit.Must(t, lock.Extend(ctx, time.Minute))
		mustUnlock(t, ctx, lock)
		held := mustLock(t, bg, rival, "x")
		if _, err := l.TryLock(ctx, "x"); !errors.Is(err, distlock.ErrHeld) {
			t.Error(err)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := l.Lock(short, "x")
		n.use(on("try", requestLost))
		_, lost := l.TryLock(ctx, "y")
		if len(failed) != 2 || failed[0].Op != "lock" || failed[0].Wait != time.Second || failed[0].Err != err ||
			failed[1].Op != "trylock" || failed[1].Name != "y" || failed[1].Err != lost {
			t.Errorf("failed: %+v, want %v and %v", failed, err, lost)
		}
		if contexts != 6 {
			t.Errorf("%d events had the context of their caller, want 6", contexts)
		}
		if len(renewed) != 2 || renewed[0].TTL != 3*time.Second || renewed[1].TTL != time.Minute ||
			renewed[0].Left < 1900*time.Millisecond || renewed[0].Left > 2*time.Second {
			t.Errorf("renewed: %+v", renewed)
		}
		_ = held.Unlock(bg)
	})
}
