package redlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
)

// cleanup is the release at one node. It goes on in the background until the node has answered,
// or the entry has ended by itself.
type cleanup struct {
	over      bool
	held      bool  // it had the entry, with the token of the grant
	ambiguous bool  // an earlier copy of the request may have removed it
	err       error // it has not answered until the entry had ended
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
			c.driver.clean(c.leftover(i, c.round, c.grant.token))
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
			if known, err := c.outcome(); known { // it may have come while the process stood still
				return err
			}
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
	b := c.driver.ballot()
	for i := range c.at {
		if p := c.at[i].cleaning; p == nil {
			b.add(false, true, nil)
		} else if p.over {
			b.add(p.held, !p.ambiguous, p.err)
		}
	}
	switch {
	case c.grant.token == 0:
		return b.told >= b.quorum, nil
	case b.carried():
		return true, nil
	case b.rejected():
		return true, distlock.ErrLost
	case b.broken():
		return true, b.fault("not known to be removed from a majority before it ended")
	}
	// All have answered, and nothing says that it was lost.
	return b.told == b.nodes, nil
}

// leftover is what the rounds of a claim up to one may have at one node.
type leftover struct {
	claim        *claim
	node         int
	round, token int64
	ends         time.Time // by then the entry has ended by itself
	cleaning     *cleanup  // nil: nobody asks for the outcome
	ambiguous    bool      // a request that had no answer may have removed it
	err          error     // of the last request; nil if there was none
}

// leftover returns what c may have at node i; c.mu is held.
func (c *claim) leftover(i int, round, token int64) *leftover {
	return &leftover{claim: c, node: i, round: round, token: token, ends: time.Now().Add(c.longest + drift(c.longest)), cleaning: c.at[i].cleaning}
}

// remove sends one request, and reports whether there is nothing more to do.
func (l *leftover) remove() (done bool) {
	c, over := l.claim, time.Now().After(l.ends)
	var held, late bool
	if !over {
		held, late, l.err = c.remove(l.node, l.round, l.token)
	} else if l.err == nil {
		l.err = c.driver.nodes[l.node].named(errSilent)
	}
	if l.ambiguous = l.ambiguous || late; l.err != nil && !over {
		return false
	}
	if p := l.cleaning; p != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		p.over, p.held, p.ambiguous, p.err = true, held, !held && l.ambiguous, l.err
		select {
		case c.progress <- struct{}{}:
		default:
		}
	}
	return true
}

// clean removes l in the background, at once unless its node hangs.
func (d *store) clean(l *leftover) {
	if d.crowded(l.node) {
		d.later(l)
		return
	}
	d.tasks.Go(func() {
		if !l.remove() {
			d.later(l)
		}
	})
}

// later has l removed when its node answers again. What waits for that costs some bytes and no
// goroutine: a node has one cleanUp.
func (d *store) later(l *leftover) {
	n := d.nodes[l.node]
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left = append(n.left, l)
	if !n.cleaning {
		n.cleaning = true
		d.tasks.Go(func() { d.cleanUp(n) })
	}
}

// maxSideBySide is how many leftovers are removed side by side at a node that answers.
const maxSideBySide = 64

// cleanUp removes what is left at n, until nothing is or the Locker is closed: one leftover after a
// pause while n does not answer, and more and more side by side once it does.
func (d *store) cleanUp(n *node) {
	var pause driver.Retry
	for share := 0; ; {
		if share == 0 {
			_ = pause.Pause(d.life) // when that ends, so do the requests
			share = 1
		}
		n.mu.Lock()
		batch := n.left[:min(share, len(n.left))]
		n.left = n.left[len(batch):]
		more := len(batch) > 0 && d.life.Err() == nil
		n.cleaning = more
		n.mu.Unlock()
		if !more {
			return
		}
		var asked sync.WaitGroup
		var failed atomic.Bool
		for _, l := range batch {
			asked.Go(func() {
				if !l.remove() {
					failed.Store(true)
					d.later(l)
				}
			})
		}
		asked.Wait()
		if share = min(2*share, maxSideBySide); failed.Load() {
			share = 0
		} else {
			pause = driver.Retry{}
		}
	}
}

// remove sends one release, of what the rounds up to this one have left.
func (c *claim) remove(i int, round, token int64) (held, late bool, err error) {
	d := c.driver
	c.mu.Lock()
	var tombstone int64
	if p := &c.at[i]; p.late || p.sent > 0 {
		tombstone = endpoint.Millis(driver.MaxLate)
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
		l := c.leftover(i, r.number, 0)
		c.driver.tasks.Go(func() {
			done := l.remove()
			if known {
				asked <- struct{}{}
			}
			if !done && c.request.NoWait {
				c.driver.later(l)
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
