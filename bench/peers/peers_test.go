package peers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
)

// start returns the URLs of as many servers as any contender needs.
func start(t *testing.T, backend servers.Kind) []string {
	t.Helper()
	nodes := 1
	for _, c := range On(backend) {
		nodes = max(nodes, c.Nodes)
	}
	var urls []string
	for range nodes {
		urls = append(urls, servers.ForTest(t, backend).URL())
	}
	return urls
}

func open(t *testing.T, c Contender, urls []string) Client {
	t.Helper()
	client, err := c.Open(t.Context(), Target{URLs: urls, TTL: 30 * time.Second, Renew: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		within(t, c, "Close", client.Close)
	})
	return client
}

// What is compared with must be a lock, used so that it is one: the second client
// waits until the first has unlocked, and no longer than that. The bare commands
// must work over and over on one name, or they would not be timed.
func TestContenders(t *testing.T) {
	for _, backend := range servers.Kinds {
		t.Run(string(backend), func(t *testing.T) {
			urls := start(t, backend)
			for _, c := range On(backend) {
				t.Run(c.Name, func(t *testing.T) {
					client := open(t, c, urls)
					if c.Role == Bare {
						repeats(t, client)
						return
					}
					excludes(t, c, client, open(t, c, urls))
					if !c.Shared {
						excludes(t, c, client, client)
					}
				})
			}
		})
	}
}

// patience is how long a call may take before it counts as one that hangs.
const patience = 30 * time.Second

// within runs f, and reports whether it returned in time. That ours does is tested
// here; a peer that hangs, as one does now and then, is not our fault, and the
// benchmarks say so where it happens. Nothing more can be seen of it then.
func within(t *testing.T, c Contender, what string, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(patience):
		if c.Role == Peer {
			t.Skipf("%s has not returned within %v", what, patience)
		}
		t.Fatalf("%s has not returned within %v", what, patience)
	}
}

func excludes(t *testing.T, c Contender, a, b Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	var held Held
	within(t, c, "Lock", func() (err error) {
		held, err = a.Lock(ctx, "excludes")
		return err
	})
	type outcome struct {
		held Held
		err  error
	}
	second := make(chan outcome, 1)
	go func() {
		h, err := b.Lock(ctx, "excludes")
		second <- outcome{h, err}
	}()
	select {
	case o := <-second:
		t.Fatalf("the second Lock has returned while the first one held: %v", o)
	case <-time.After(300 * time.Millisecond):
	}
	if held.Lost() {
		t.Error("a lock that is held counts as lost")
	}
	within(t, c, "Unlock", func() error { return held.Unlock(ctx) })
	var o outcome
	within(t, c, "the second Lock", func() error {
		o = <-second
		return o.err
	})
	within(t, c, "the second Unlock", func() error { return o.held.Unlock(ctx) })
}

func repeats(t *testing.T, client Client) {
	for range 3 {
		h, err := client.Lock(t.Context(), "bare")
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// What is sent again, as it was recorded from ours, must still be a lock: ours is
// kept out by it for as long as it is held, and for no longer.
func TestRecordedRequestsLock(t *testing.T) {
	for _, c := range []Contender{bareScripts, bareStatements, bareTransactions} {
		t.Run(c.Name, func(t *testing.T) {
			urls := start(t, c.Backend)
			replayed := open(t, c, urls)
			locker := open(t, ours(c.Backend), urls).(*distlockClient)
			for range 2 { // a name that is new, and one that is not
				held, err := replayed.Lock(t.Context(), "both")
				if err != nil {
					t.Fatal(err)
				}
				if l, err := locker.TryLock(t.Context(), "both"); !errors.Is(err, distlock.ErrHeld) {
					t.Fatalf("ours has got %v, error %v, want ErrHeld", l, err)
				}
				if err := held.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				l, err := locker.TryLock(t.Context(), "both")
				if err != nil {
					t.Fatalf("after the release: %v", err)
				}
				if err := l.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			held, err := replayed.Lock(t.Context(), "another")
			if err != nil {
				t.Fatal(err)
			}
			if err := held.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if held.Unlock(t.Context()) == nil {
				t.Error("what is not held any more can be released")
			}
		})
	}
}

func TestOn(t *testing.T) {
	n := 0
	for _, backend := range servers.Kinds {
		on := On(backend)
		n += len(on)
		if len(on) < 3 || on[0].Role != Ours || on[len(on)-1].Role != Bare {
			t.Errorf("%s: %d contenders, or ours is not the first, or the bare commands not the last", backend, len(on))
		}
	}
	if n != len(All) {
		t.Errorf("%d of %d contenders are on a backend", n, len(All))
	}
}
