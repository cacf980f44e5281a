package redlock

import (
	"context"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
)

// Pauses between two requests to a server that does not answer a release.
const (
	minCleanPause = 50 * time.Millisecond
	maxCleanPause = time.Second
)

// cleanup is the release at one node. It goes on in the background until the node has answered,
// or the entry has ended by itself.
type cleanup struct {
	over      bool
	held      bool // it had the entry, with the token of the grant
	ambiguous bool // an earlier copy of the request may have removed it
}

// Release implements driver.Claim. It sends the same to every server on which the claim may have
// something, and returns when a majority has answered.
func (c *claim) Release(ctx context.Context) error {
	c.mu.Lock()
	c.released = true
	if c.progress == nil {
		c.progress = make(chan struct{}, 1)
	}
	for i := range c.at {
		if p := &c.at[i]; p.cleaning == nil && p.touched() {
			p.cleaning = new(cleanup)
			c.driver.tasks.Go(func() { c.clean(i) })
		}
	}
	c.mu.Unlock()
	for {
		if known, err := c.outcome(); known {
			return err
		}
		select {
		case <-c.progress:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// outcome reports whether the outcome of the release is known. A claim that was not granted is
// released as soon as a majority has nothing of it, so that others can get the name. One that was
// granted has held the name until now if a majority had its entry, and has lost it if a majority
// cannot have had it any more.
func (c *claim) outcome() (known bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	quorum := c.driver.quorum
	held, ambiguous, nothing := 0, 0, 0
	for i := range c.at {
		switch p := c.at[i].cleaning; {
		case p == nil:
			nothing++
		case !p.over:
		case p.held:
			held++
		case p.ambiguous:
			ambiguous++
		default:
			nothing++
		}
	}
	switch {
	case c.grant.token == 0:
		return held+ambiguous+nothing >= quorum, nil
	case held >= quorum:
		return true, nil
	case nothing > len(c.at)-quorum:
		return true, distlock.ErrLost
	}
	// All have answered, and nothing says that it was lost.
	return held+ambiguous+nothing == len(c.at), nil
}

// clean is the release at node i.
func (c *claim) clean(i int) {
	c.mu.Lock()
	round, token, p := c.round, c.grant.token, c.at[i].cleaning
	c.mu.Unlock()
	held, ambiguous := c.removeRepeatedly(i, round, token)
	c.mu.Lock()
	defer c.mu.Unlock()
	p.over, p.held, p.ambiguous = true, held, ambiguous
	select {
	case c.progress <- struct{}{}:
	default:
	}
}

// removeRepeatedly calls remove until the node has answered, the entry has ended by itself, or the
// Locker is closed. ambiguous says that an unanswered copy may have removed the entry.
func (c *claim) removeRepeatedly(i int, round, token int64) (held, ambiguous bool) {
	c.mu.Lock()
	ends := time.Now().Add(c.longest + drift(c.longest))
	c.mu.Unlock()
	for pause := minCleanPause; ; pause = min(2*pause, maxCleanPause) {
		held, late, err := c.remove(i, round, token)
		ambiguous = ambiguous || late
		if err == nil || time.Now().After(ends) || !sleep(c.driver.life, pause) {
			return held, !held && (ambiguous || err != nil)
		}
	}
}

// remove sends one release, of what the rounds up to this one have left.
func (c *claim) remove(i int, round, token int64) (held, late bool, err error) {
	d := c.driver
	c.mu.Lock()
	var tombstone int64
	if p := &c.at[i]; p.late || p.sent > 0 {
		tombstone = endpoint.Millis(tombstoneTime)
	}
	c.mu.Unlock()
	answer, late, err := d.nodes[i].ask(d.life, releaseScript, []string{c.key.entry(), c.key.tombstone(c.request.Owner)},
		c.request.Owner, round, token, tombstone)
	if err != nil {
		return false, late, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := &c.at[i]; round == c.round {
		p.entry = false
		p.late = p.late && tombstone == 0
	}
	return answer == int64(1), late, nil
}

// undo removes what a round has left, and waits once for those servers that have said that it is
// there, and do not hang now. Where that fails, Release does it later. A refused TryLock is not
// released: then it is repeated here, in the background.
func (c *claim) undo(ctx context.Context, r *round) {
	asked := make(chan struct{}, len(c.at))
	waiting := 0
	hanging := c.driver.awaited().ignored
	c.mu.Lock()
	for i := range c.at {
		p := &c.at[i]
		if !p.touched() || !c.request.NoWait && c.driver.crowded(i) {
			continue
		}
		known := p.entry && !hanging[i]
		if known {
			waiting++
		}
		c.driver.tasks.Go(func() {
			_, _, err := c.remove(i, r.number, 0)
			if known {
				asked <- struct{}{}
			}
			if err != nil && c.request.NoWait {
				c.removeRepeatedly(i, r.number, 0)
			}
		})
	}
	c.mu.Unlock()
	for range waiting {
		select {
		case <-asked:
		case <-ctx.Done():
			return
		}
	}
}
