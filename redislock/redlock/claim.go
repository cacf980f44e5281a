package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// claim is one acquisition.
//
//	Try      round 1: take everywhere ──▶ a majority: confirm ──▶ a majority: granted
//	                                  ──▶ split: undo, pause, round 2 …
//	                                  ──▶ no majority: undo
//	Release  everywhere, with a tombstone where a request may still arrive
//
// Requests to slow servers go on in the background after a method has returned. They share at,
// under mu; each has the round that it belongs to.
type claim struct {
	driver  *store
	request driver.Request
	key     key

	mu       sync.Mutex
	round    int64         // of the present or latest Try
	grant    stamp         // all 0 if there was none
	released bool          // nothing is repaired any more
	longest  time.Duration // TTL asked for, as the entries may last that long
	at       []place       // by node

	progress chan struct{} // one element: a cleanup is over
}

// place is the state of a claim on one server.
type place struct {
	entry    bool     // it may have an entry there
	late     bool     // a request that makes an entry may still arrive, though nobody waits for its answer
	sent     int      // such requests under way
	cleaning *cleanup // of a release; nil before
}

// touched reports whether there may be something to remove.
func (p *place) touched() bool { return p.entry || p.late || p.sent > 0 }

const (
	// maxSplits is how many rounds a Try has if the servers are split between claims. Claims of many
	// processes that begin at the same moment take some servers each, and none a majority.
	maxSplits = 4

	// minSplitPause and maxSplitPause are the bounds of the first pause between them. What takes longer than a way around the
	// world is slow for another reason.
	minSplitPause = 4 * time.Millisecond
	maxSplitPause = 200 * time.Millisecond
)

// Try implements driver.Claim. The protocol itself repeats a split round, after a random pause: the name is free, and
// one of the claims will have a majority. All else is the engine's to repeat.
func (c *claim) Try(ctx context.Context) (driver.Grant, error) {
	var pause driver.Retry
	for try := 1; ; try++ {
		began := time.Now()
		// The end of the caller's context does not end its requests: their outcome counts for others.
		r := c.newRound()
		grant, err := r.run(ctx)
		if err == nil {
			return grant, nil
		}
		// At once, because the others need what this round has taken.
		c.undo(ctx, r)
		split, ok := errors.AsType[*splitError](err)
		if !ok {
			if !errors.Is(err, distlock.ErrHeld) && c.touched() {
				err = &driver.Fault{Fate: driver.Unknown, Err: err}
			}
			return driver.Grant{}, err
		}
		// The claims must begin further apart than their requests arrive.
		pause.First = min(max(minSplitPause, 2*time.Since(began)), maxSplitPause)
		pause.Most = 4 * pause.First
		if try >= maxSplits || pause.Pause(ctx) != nil {
			return driver.Grant{}, split.HeldError
		}
	}
}

// touched reports whether a server may have something of c, or get it.
func (c *claim) touched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.at, func(p place) bool { return p.touched() })
}

// splitError says that no claim was seen to have a majority.
type splitError struct{ *distlock.HeldError }

// newRound begins a round, and so a request to every server.
func (c *claim) newRound() *round {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round++
	for i := range c.at {
		c.at[i].sent++
	}
	return &round{claim: c, number: c.round}
}

// Wait implements driver.Claim. Nothing wakes a claim: the engine polls, with its backoff and its
// jitter.
func (c *claim) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// mend notes that a repair is sent to node i. It reports false if the claim was released.
func (c *claim) mend(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.released {
		c.at[i].sent++
	}
	return !c.released
}

// ended notes the outcome of a request that makes an entry at node i.
func (c *claim) ended(i int, entry, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.at[i]
	p.sent--
	p.entry = p.entry || entry
	p.late = p.late || late
}
