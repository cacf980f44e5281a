package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
)

// A waiter that was not woken reads two keys. It reads the queue only if one of them
// has changed, or if the server refuses the request that it shares with others.
func testLook(t *testing.T, s *servers.Server) {
	st := newStore(t, s).counted()
	others := storeAt(t, s, st.prefix)
	holder := others.won("x", nil)
	waiter := st.claim("x", nil)
	st.held(waiter)
	waiter.lease.age(-time.Hour) // no look needs a keep-alive
	st.wantRequests("a look", "map[Peek:1]", func() { st.held(waiter) })

	st.wire.next("Peek", overQuota)
	st.wantRequests("a look that was refused", "map[Peek:1 Range:1]", func() { st.held(waiter) })
	st.wire.next("Peek", refuse)
	if _, err := waiter.Try(t.Context()); driver.FateOf(err) != driver.Unknown {
		t.Errorf("Try with a lost connection: %v, want the client's error", err)
	}
	st.wantRequests("a look after it", "map[Peek:1]", func() { st.held(waiter) })

	behind := others.claim("x", nil)
	others.held(behind)
	others.release(holder, nil)
	again := others.claim("x", nil)
	others.held(again)
	if again.key != holder.key {
		t.Fatalf("the keys are %q and %q, want the same key again", again.key, holder.key)
	}
	st.wantRequests("a look when another claim has the key before", "map[Peek:1 Range:1]", func() { st.grant(waiter) })
	st.release(waiter, nil)
	others.grant(behind)
}

// A look of a waiter for a fixed term keeps its lease alive, however much longer that takes than the read.
func testLookOfFixedTerm(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	st.won("x", nil)
	waiter := st.claim("x", noRenewal)
	st.held(waiter)
	waiter.lease.heard(28 * time.Second) // of 30
	st.wire.next("LeaseKeepAlive", hang)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := waiter.Try(ctx)
	cancel() // as the engine does after each call
	if kept := waiter.lease.lasts(time.Now().Add(10 * time.Second)); !errors.Is(err, distlock.ErrHeld) || !kept {
		t.Errorf("Try: %v, want ErrHeld; the lease is kept alive: %v", err, kept)
	}
}

// Waiters of one lease look by as few requests as the server answers one after the
// other: what comes while one is under way goes along with the next.
func testLookTogether(t *testing.T, s *servers.Server) {
	const waiters = maxReads // two keys each
	st := newStore(t, s).counted()
	others := storeAt(t, s, st.prefix)
	var claims, holders []*claim
	for i := range waiters {
		holders = append(holders, others.won(fmt.Sprint(i), nil))
		claims = append(claims, st.claim(fmt.Sprint(i), nil))
		st.held(claims[i])
	}
	l := claims[0].lease
	l.age(-time.Hour) // no look needs a keep-alive
	l.mu.Lock()
	l.peeking = true // as if one was under way
	l.mu.Unlock()
	others.release(holders[1], nil)
	st.wantRequests("the looks", "map[Peek:2 Range:1]", func() {
		var looks sync.WaitGroup
		for i, c := range claims {
			looks.Go(func() {
				if _, err := c.Try(t.Context()); errors.Is(err, distlock.ErrHeld) != (i != 1) || i == 1 && err != nil {
					t.Errorf("Try of %d: %v", i, err)
				}
			})
		}
		st.eventually("all have come", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.peeks) == 2 && len(l.peeks[1].ops) == maxReads
		})
		l.sendPeeks()
		looks.Wait()
	})
}

// The time for a watch to begin counts from its own turn: the library asks for one after
// the other. A hundred waiters on a slow server do not give up all at once.
func testWatchesBeginInTurn(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	others := storeAt(t, s, st.prefix)
	st.beginning <- struct{}{} // as if one was beginning
	var outcomes []<-chan error
	var claims, holders []*claim
	for i := range 3 {
		holders = append(holders, others.won(fmt.Sprint(i), nil))
		c := st.claim(fmt.Sprint(i), nil)
		st.held(c)
		claims, outcomes = append(claims, c), append(outcomes, st.waiting(c))
	}
	st.wantRequests("waiting for the turn", "map[]", func() {
		select {
		case err := <-outcomes[0]:
			t.Errorf("Wait: %v, want it to wait", err)
		case <-time.After(watchLimit + watchLimit/4):
		}
	})
	<-st.beginning
	for i, c := range claims {
		others.release(holders[i], nil)
		st.woken(outcomes[i])
		st.grant(c)
	}

	st.beginning <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if began, _ := new(watch).begin(ctx, st.store, "y"); began {
		t.Error("a watch has begun out of its turn")
	}
	<-st.beginning
}
