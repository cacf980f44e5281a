package driver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

var errBroken = errors.New("connection broken")

// network is the way to a memlock.Store, with faults: rules are asked in order for
// each request, and the first that returns true has dealt with it.
type network struct {
	mu    sync.Mutex
	calls []memlock.Call
	rules []rule
}

type rule func(ctx context.Context, c memlock.Call, apply func()) (handled bool, err error)

func (n *network) intercept(ctx context.Context, c memlock.Call, apply func()) error {
	n.mu.Lock()
	n.calls = append(n.calls, c)
	rules := n.rules
	n.mu.Unlock()
	for _, r := range rules {
		if handled, err := r(ctx, c, apply); handled {
			return err
		}
	}
	apply()
	return nil
}

func (n *network) use(rules ...rule) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules = rules
}

// count returns the number of requests of the given kind so far.
func (n *network) count(op string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	total := 0
	for _, c := range n.calls {
		if c.Op == op {
			total++
		}
	}
	return total
}

// on applies a fault to the requests of one kind.
func on(op string, r rule) rule {
	return func(ctx context.Context, c memlock.Call, apply func()) (bool, error) {
		if c.Op != op {
			return false, nil
		}
		return r(ctx, c, apply)
	}
}

// once lets only the first request meet the fault.
func once(r rule) rule {
	var mu sync.Mutex
	used := false
	return func(ctx context.Context, c memlock.Call, apply func()) (bool, error) {
		mu.Lock()
		first := !used
		used = true
		mu.Unlock()
		if !first {
			return false, nil
		}
		return r(ctx, c, apply)
	}
}

func requestLost(context.Context, memlock.Call, func()) (bool, error) { return true, errBroken }

func replyLost(_ context.Context, _ memlock.Call, apply func()) (bool, error) {
	apply()
	return true, errBroken
}

// hangs blocks until the test ends, whatever happens to ctx.
func hangs(t *testing.T) rule {
	forever := make(chan struct{})
	t.Cleanup(func() { close(forever) })
	return func(context.Context, memlock.Call, func()) (bool, error) {
		<-forever
		return true, errBroken
	}
}

// stuck is a request that nothing comes of until its context ends.
func stuck(ctx context.Context, _ memlock.Call, _ func()) (bool, error) {
	<-ctx.Done()
	return true, ctx.Err()
}

// appliedAndStuck is one that was applied.
func appliedAndStuck(ctx context.Context, c memlock.Call, apply func()) (bool, error) {
	apply()
	return stuck(ctx, c, apply)
}

// late is a request that reaches the store after d, if its context lasts.
func late(d time.Duration) rule {
	return func(ctx context.Context, _ memlock.Call, apply func()) (bool, error) {
		select {
		case <-time.After(d):
			apply()
			return true, nil
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
}

// slow delays request and reply by half of d each, and ignores ctx.
func slow(d time.Duration) rule {
	return func(_ context.Context, _ memlock.Call, apply func()) (bool, error) {
		time.Sleep(d / 2)
		apply()
		time.Sleep(d / 2)
		return true, nil
	}
}

// open returns a Locker over store that is closed at the end of the test.
func open(t *testing.T, store *memlock.Store, o *memlock.Options) *memlock.Locker {
	t.Helper()
	l, err := memlock.New(store, o)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() }) // its error is the subject of tests of its own
	return l
}

// faulty returns a Locker whose requests pass through n. Requests whose context
// comes from healthy, as the other Locker of a test uses it, meet no fault.
func faulty(t *testing.T, o *memlock.Options) (*network, *memlock.Locker, *memlock.Locker) {
	t.Helper()
	n := new(network)
	store := memlock.NewStore(&memlock.StoreOptions{
		Intercept: func(ctx context.Context, c memlock.Call, apply func()) error {
			if ctx.Value(healthyKey{}) != nil {
				apply()
				return nil
			}
			return n.intercept(ctx, c, apply)
		},
	})
	return n, open(t, store, o), open(t, store, nil)
}

type healthyKey struct{}

func healthy() context.Context {
	return context.WithValue(context.Background(), healthyKey{}, true)
}

func mustLock(t *testing.T, ctx context.Context, l distlock.Locker, name string, opts ...distlock.Option) distlock.Lock {
	t.Helper()
	lock, err := l.Lock(ctx, name, opts...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", name, err)
	}
	return lock
}

func mustUnlock(t *testing.T, ctx context.Context, lock distlock.Lock) {
	t.Helper()
	if err := lock.Unlock(ctx); err != nil {
		t.Errorf("Unlock of %q: %v", lock.Name(), err)
	}
}

// mustPanic fails unless f panics with what is said.
func mustPanic(t *testing.T, said string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), said) {
			t.Errorf("recovered %v, want %q", v, said)
		}
	}()
	f()
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got error %v, want one that matches %q", what, err, want)
	}
}
