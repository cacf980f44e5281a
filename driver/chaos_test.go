package driver_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// unreliable loses, delays and refuses requests and replies at random.
func unreliable(ctx context.Context, _ memlock.Call, apply func()) (bool, error) {
	delay := rand.N(4 * time.Millisecond)
	if rand.N(30) == 0 {
		delay = rand.N(80 * time.Millisecond) // longer than most leases here
	}
	travel := func() error {
		heeded := ctx.Done()
		if rand.N(2) == 0 {
			heeded = nil // as by a client library that ignores contexts
		}
		select {
		case <-time.After(delay / 2):
			return nil
		case <-heeded:
			return ctx.Err()
		}
	}
	if err := travel(); err != nil {
		return true, err
	}
	if rand.N(40) == 0 {
		return true, errBroken
	}
	apply()
	if rand.N(40) == 0 {
		return true, errBroken
	}
	return true, travel()
}

// witness sees each lock as it is won, and knows the holder before.
type witness struct {
	mu    sync.Mutex
	last  map[string]distlock.Lock
	token map[string]int64
}

func (w *witness) won(t *testing.T, lock distlock.Lock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := lock.Name()
	if last := w.last[name]; last != nil && last.Err() == nil && lock.Err() == nil {
		t.Errorf("two holders of %s, with the tokens %d and %d", name, last.Token(), lock.Token())
	}
	// A lock whose caller came here late, and has lost it, may come after its successor.
	if lock.Err() == nil && lock.Token() <= w.token[name] {
		t.Errorf("the token of %s fell from %d to %d", name, w.token[name], lock.Token())
	}
	w.last[name], w.token[name] = lock, max(w.token[name], lock.Token())
}

// TestChaos lets everything that a caller can do to a lock happen at the same time,
// over a network that fails, and Close come in between. Run it with -race.
func TestChaos(t *testing.T) {
	for _, batch := range []bool{true, false} {
		t.Run(fmt.Sprintf("batch=%v", batch), func(t *testing.T) {
			for range 10 {
				synctest.Test(t, func(t *testing.T) { chaos(t, batch) })
			}
		})
	}
}

func chaos(t *testing.T, batch bool) {
	n := new(network)
	n.use(unreliable)
	store := memlock.NewStore(&memlock.StoreOptions{Intercept: n.intercept})
	lockers := make([]*driver.Client, 3)
	for i := range lockers {
		d := memlock.NewDriver(store)
		if !batch {
			d = plain{d}
		}
		l, err := driver.New(d, &distlock.Options{TTL: 60 * time.Millisecond})
		testkit.Must(t, err)
		defer l.Close()
		lockers[i] = l
	}
	w := &witness{last: make(map[string]distlock.Lock), token: make(map[string]int64)}
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			for range 20 {
				visit(t, lockers[rand.N(len(lockers))], w)
			}
		})
	}
	time.Sleep(rand.N(500 * time.Millisecond))
	_ = lockers[0].Close() // what it could not release ends with its TTL
	wg.Wait()
	for _, l := range lockers {
		_ = l.Close()
	}
	n.use()
	time.Sleep(200 * time.Millisecond) // the longest lease
	fresh := open(t, store, nil)
	for name := range w.last {
		if _, err := fresh.TryLock(bg, name); err != nil {
			t.Errorf("something is left of a lock: %v", err)
		}
	}
}

// visit takes a lock, extends it, and unlocks it from several goroutines, or lets it
// go in other ways.
func visit(t *testing.T, l distlock.Locker, w *witness) {
	var opts []distlock.Option
	if rand.N(3) == 0 {
		opts = append(opts, distlock.NoRenewal())
	}
	take := l.Lock
	if rand.N(3) == 0 {
		take = l.TryLock
	}
	ctx, cancel := context.WithTimeout(bg, 1+rand.N(60*time.Millisecond))
	lock, err := take(ctx, fmt.Sprint("x", rand.N(3)), opts...)
	cancel()
	if (lock == nil) == (err == nil) {
		t.Errorf("got lock %v and error %v", lock, err)
	}
	if err != nil {
		return
	}
	w.won(t, lock)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range rand.N(3) {
		wg.Go(func() {
			time.Sleep(rand.N(50 * time.Millisecond))
			ctx, cancel := context.WithTimeout(bg, 1+rand.N(20*time.Millisecond))
			defer cancel()
			_ = lock.Extend(ctx, time.Millisecond+rand.N(100*time.Millisecond)) // may fail in any way
		})
	}
	select {
	case <-lock.Done():
	case <-time.After(rand.N(100 * time.Millisecond)):
	}
	for range 1 + rand.N(2) {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(bg, rand.N(20*time.Millisecond))
			defer cancel()
			_ = lock.Unlock(ctx) // may not know
			if lock.Err() == nil {
				t.Error("Err is nil after Unlock")
			}
		})
	}
}
