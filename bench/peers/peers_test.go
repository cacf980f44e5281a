package peers

import (
	"context"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
)

// What is compared with must be a lock, used so that it is one: the second client
// waits until the first has unlocked, and no longer than that.
func TestPeersExclude(t *testing.T) {
	cirelloLease = 3 * time.Second // what holds must not lose it on a machine that is late
	for _, store := range servers.Kinds {
		t.Run(string(store), func(t *testing.T) {
			var urls []string
			for _, p := range On(store) {
				for len(urls) < max(p.Nodes, 1) {
					urls = append(urls, servers.ForTest(t, store).URL())
				}
				t.Run(p.Name, func(t *testing.T) {
					a, b := open(t, p, urls), open(t, p, urls)
					excludes(t, a, b)
					if !p.Shared {
						excludes(t, a, a)
					}
				})
			}
		})
	}
}

func open(t *testing.T, p Peer, urls []string) distlock.Locker {
	t.Helper()
	l, err := p.Open(t.Context(), Target{URLs: urls[:max(p.Nodes, 1)], TTL: 30 * time.Second, Renew: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

// patience is how long a call may take. A peer that hangs, as one does now and then, is
// not our fault, and the page says so where it happens: nothing more can be seen of it.
const patience = 30 * time.Second

type outcome struct {
	lock distlock.Lock
	err  error
}

func within(t *testing.T, what string, done <-chan outcome) distlock.Lock {
	t.Helper()
	select {
	case o := <-done:
		if o.err != nil {
			t.Fatalf("%s: %v", what, o.err)
		}
		return o.lock
	case <-time.After(patience):
		t.Skipf("%s has not returned within %v", what, patience)
		return nil
	}
}

func excludes(t *testing.T, a, b distlock.Locker) {
	t.Helper()
	lock := func(l distlock.Locker) <-chan outcome {
		done := make(chan outcome, 1)
		go func() {
			h, err := l.Lock(context.Background(), "excludes/me")
			done <- outcome{h, err}
		}()
		return done
	}
	unlock := func(h distlock.Lock) <-chan outcome {
		done := make(chan outcome, 1)
		go func() { done <- outcome{nil, h.Unlock(context.Background())} }()
		return done
	}
	first := within(t, "Lock", lock(a))
	second := lock(b)
	select {
	case o := <-second:
		t.Fatalf("the second Lock has returned while the first one held: %v", o)
	case <-time.After(300 * time.Millisecond):
	}
	if err := first.Err(); err != nil {
		t.Errorf("a lock that is held: %v", err)
	}
	within(t, "Unlock", unlock(first))
	within(t, "the second Unlock", unlock(within(t, "the second Lock", second)))
}
