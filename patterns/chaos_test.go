package patterns_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

// rough is a store behind a network that loses one in fifty requests and replies, and
// delays as many for longer than a lease.
func rough() *memlock.Store {
	return memlock.NewStore(&memlock.StoreOptions{Intercept: func(ctx context.Context, _ memlock.Call, apply func()) error {
		switch rand.N(50) {
		case 0:
			return errWork
		case 1:
			apply()
			return errWork
		case 2:
			select {
			case <-time.After(rand.N(10 * time.Second)):
			case <-ctx.Done():
				if rand.N(2) == 0 {
					return ctx.Err()
				}
			}
		}
		apply()
		return nil
	}})
}

// belief is when an acquisition held its lock, as its holder knew.
type belief struct {
	writes     bool
	token      int64
	from, till time.Time
}

// hold takes a lock, holds it for a while, and returns the belief; false if there was
// no lock to be had.
func hold(l distlock.Locker, writes bool) (belief, bool) {
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	lock, err := l.Lock(ctx, "x", distlock.TTL(2*time.Second))
	if err != nil {
		return belief{}, false
	}
	b := belief{writes: writes, token: lock.Token(), from: time.Now()}
	select {
	case <-lock.Done():
	case <-time.After(rand.N(3 * time.Second)):
	}
	b.till = time.Now()
	if end := lock.Deadline(); end.Before(b.till) {
		b.till = end
	}
	_ = lock.Unlock(ctx) // lost, or in the background
	return b, b.from.Before(b.till)
}

// beliefs lets workers hold what locker gives them, and returns their beliefs by begin.
func beliefs(t *testing.T, store *memlock.Store, locker func(l *memlock.Locker) (distlock.Locker, bool)) []belief {
	t.Helper()
	var mu sync.Mutex
	var all []belief
	failed := 0
	var wg sync.WaitGroup
	for range 8 {
		l, err := memlock.New(store, nil)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = l.Close() }) // a release may have been lost
		wg.Go(func() {
			for range 100 {
				b, ok := hold(locker(l))
				mu.Lock()
				if ok {
					all = append(all, b)
				} else {
					failed++
				}
				mu.Unlock()
				time.Sleep(rand.N(time.Second))
			}
		})
	}
	wg.Wait()
	if len(all) < 200 {
		t.Errorf("%d locks were held, %d calls failed", len(all), failed)
	}
	slices.SortFunc(all, func(a, b belief) int { return a.from.Compare(b.from) })
	return all
}

// Whatever the network does: a writer is alone for as long as it may believe in its
// lock, and of two that must not meet the later one has the higher token.
func TestReadWriteRough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := beliefs(t, rough(), func(l *memlock.Locker) (distlock.Locker, bool) {
			read, write := patterns.ReadWrite(l, 4)
			if rand.N(4) == 0 {
				return write, true
			}
			return read, false
		})
		for i, a := range all {
			for _, b := range all[i+1:] {
				if !a.writes && !b.writes {
					continue
				}
				if b.from.Before(a.till) || b.token <= a.token {
					t.Fatalf("%+v and %+v", a, b)
				}
			}
		}
	})
}

func TestSemaphoreRough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		all := beliefs(t, rough(), func(l *memlock.Locker) (distlock.Locker, bool) { return patterns.Semaphore(l, n), true })
		for i, a := range all {
			holding := 1
			for _, b := range all[:i] {
				if a.from.Before(b.till) {
					holding++
				}
			}
			if holding > n {
				t.Fatalf("%d hold at %v", holding, a.from)
			}
		}
	})
}

// An election goes on when the store is back.
func TestElectStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := time.Now().Add(time.Minute)
		l := open(t, memlock.NewStore(&memlock.StoreOptions{Intercept: func(_ context.Context, _ memlock.Call, apply func()) error {
			if time.Now().Before(up) {
				return errWork
			}
			apply()
			return nil
		}}))
		ctx, cancel := context.WithCancel(bg)
		e := patterns.Elect(ctx, l, "x", untilEnd)
		time.Sleep(30 * time.Second)
		if _, ok := e.Leader(); ok || !errors.Is(e.Err(), errWork) {
			t.Errorf("while the store is down: leads %v, error %v", ok, e.Err())
		}
		time.Sleep(time.Minute)
		if _, ok := e.Leader(); !ok || e.Err() != nil {
			t.Errorf("when it is back: leads %v, error %v", ok, e.Err())
		}
		cancel()
		wantErr(t, "Wait", e.Wait(), context.Canceled)
	})
}
