package peers

import (
	"context"
	"testing"
	"time"

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
		if err := client.Close(); err != nil {
			t.Error(err)
		}
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
					excludes(t, client, open(t, c, urls))
					if !c.Shared {
						excludes(t, client, client)
					}
				})
			}
		})
	}
}

func excludes(t *testing.T, a, b Client) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	held, err := a.Lock(ctx, "excludes")
	if err != nil {
		t.Fatal(err)
	}
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
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	o := <-second
	if o.err != nil {
		t.Fatal(o.err)
	}
	if err := o.held.Unlock(ctx); err != nil {
		t.Error(err)
	}
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
