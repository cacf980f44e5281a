package driver_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/memlock"
)

// However many callers wait for one name at a silent store, each is told after its own limit, or twice that
// if another was asking when it came.
func TestFirstLocksFailTogetherInSilence(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		n.use(on("try", stuck))
		began := time.Now()
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				_, err := l.Lock(bg, "x", distlock.TTL(time.Minute))
				if _, silent := errors.AsType[*driver.NoAnswer](err); !silent {
					t.Errorf("Lock: %v", err)
				}
			})
		}
		ctx, cancel := context.WithTimeout(bg, 15*time.Second)
		defer cancel()
		synctest.Wait()
		_, err := l.Lock(ctx, "x")
		wantErr(t, "one with a deadline", err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "no answer from memory within 10s") {
			t.Errorf("it does not say that the store is silent: %v", err)
		}
		callers.Wait()
		if took := time.Since(began); took > 21*time.Second || n.count("try") > 3 {
			t.Errorf("the last of 50 callers failed after %v and %d requests", took, n.count("try"))
		}
		n.use()
		mustLock(t, bg, l, "x")
	})
}

// What says nothing of the store to those behind in the queue fails one call only: a look that had less time
// than theirs, a connection that broke, and a silence that an answer has ended.
func TestFirstLockAsksForItself(t *testing.T) {
	const short, long = time.Second, time.Minute
	for what, c := range map[string]struct {
		queue []time.Duration // the TTLs
		fail  int             // how many of the first fail
		rules []rule
	}{
		"a short TTL":        {[]time.Duration{short, short, long}, 2, []rule{on("try", late(2*time.Second))}},
		"a broken one":       {[]time.Duration{long, long, long}, 1, []rule{on("try", once(requestLost))}},
		"a grant since":      {[]time.Duration{short, short, long, short}, 2, []rule{on("try", times(2, stuck))}},
		"a refusal since":    {[]time.Duration{short, short, long, short}, 3, []rule{on("try", times(2, stuck)), on("try", once(fails(driver.Answered)))}},
		"another time since": {[]time.Duration{short, short, long, short}, 2, []rule{on("try", times(2, stuck)), on("try", times(5, fails(driver.NotNow)))}},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
				n.use(c.rules...)
				var calls sync.WaitGroup
				for i, ttl := range c.queue {
					calls.Go(func() {
						lock, err := l.Lock(bg, "x", distlock.TTL(ttl))
						if err == nil {
							err = lock.Unlock(bg)
						}
						if (err != nil) != (i < c.fail) {
							t.Errorf("number %d of the queue: %v", i+1, err)
						}
					})
					synctest.Wait()
				}
				calls.Wait()
			})
		})
	}
}

// One request that hangs, such as on a connection that a router has forgotten, fails its own call and none of those
// behind it, though they all were there when it began.
func TestFirstLocksBehindOneThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		n.use(on("try", once(late(time.Second))), on("try", once(stuck)))
		var calls sync.WaitGroup
		for i := range 10 {
			calls.Go(func() {
				lock, err := l.Lock(bg, "x")
				if err == nil {
					err = lock.Unlock(bg)
				}
				if (err != nil) != (i == 1) {
					t.Errorf("number %d of the queue: %v", i+1, err)
				}
			})
			synctest.Wait()
		}
		calls.Wait()
	})
}

// A TryLock at a silent store ends after its TTL, also if it had to wait for earlier calls first.
func TestTryLockBehindOthersInSilence(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		n.use(on("try", stuck), on("release", requestLost))
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() { _, _ = l.TryLock(bg, "x", distlock.TTL(2*time.Second)) })
		}
		calls.Wait() // they are undone for as long as their TTL
		began := time.Now()
		for range 4 {
			calls.Go(func() {
				_, err := l.TryLock(bg, "x", distlock.TTL(12*time.Second))
				if _, silent := errors.AsType[*driver.NoAnswer](err); !silent {
					t.Errorf("TryLock: %v", err)
				}
			})
		}
		calls.Wait()
		if took := time.Since(began); took > 10*time.Second+50*time.Millisecond {
			t.Errorf("the last has failed after %v", took)
		}
	})
}
