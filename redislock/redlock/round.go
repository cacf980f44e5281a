package redlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
	"github.com/distlock-go/distlock/redislock/internal/names"
)

var (
	// errOver is the answer to a take that arrives after the round was over.
	errOver = errors.New("the claim has been released")

	// errNotOwned is the answer to a phase 2 that finds the entry gone, or a higher token.
	errNotOwned error = &driver.Fault{Fate: driver.Again, Err: errors.New("the key was gone before the token could be written")}
)

// round is one attempt to get a majority.
//
//	coordinator          each node, on a goroutine of its own
//	run ───────────────▶ take
//	  ◀── vote ───────── taken, with a token; refused; failed
//	a majority has voted
//	decided ───────────▶ confirm, if taken: also those that come later
//	  ◀── confirmed ────
//	a majority is confirmed: granted
//
// Each phase ends with the answer that decides it, so it is as fast as the fastest majority.
type round struct {
	claim  *claim
	number int64

	votes     chan vote     // one of each node, buffered so that nobody has to be there for it
	confirmed chan error    // the same
	decided   chan struct{} // closed when phase 1 is over
	grant     stamp         // set before that: what phase 2 writes, or 0 if it does not take place
}

// stamp identifies a grant: its token, and the time by the clock of the server
// with the highest token, in µs.
type stamp struct{ token, acquired int64 }

// vote is the answer of a node to phase 1.
type vote struct {
	node  int
	stamp       // if taken
	left  int64 // if refused: ms until the entry of the other ends; below 0 if never
	entry string
	err   error // if failed
}

// run returns the grant, an error that matches ErrHeld, or what went wrong. It leaves entries if
// it fails.
func (r *round) run(ctx context.Context) (driver.Grant, error) {
	c, d := r.claim, r.claim.driver
	r.votes, r.confirmed = make(chan vote, len(d.nodes)), make(chan error, len(d.nodes))
	r.decided = make(chan struct{})
	t := tally{ballot: d.ballot(), awaited: d.awaited()}
	d.each(func(i int, _ *node) { r.ask(i) })
	err := t.collect(ctx, r.votes)
	if err == nil {
		r.grant = t.stamp
	}
	close(r.decided)
	if err == nil {
		err = r.confirmations(ctx)
	}
	if err != nil {
		return driver.Grant{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grant = r.grant
	return driver.Grant{Token: r.grant.token, TTL: c.request.TTL}, nil
}

// ask takes part in both phases at one node.
func (r *round) ask(i int) {
	v := r.take(i)
	r.votes <- v
	<-r.decided
	switch {
	case v.token == 0:
		if v.err == nil {
			v.err = errNotOwned // it is another's
		}
		r.confirmed <- v.err
	case r.grant.token != 0:
		r.confirmed <- r.confirm(i)
	}
}

// take is phase 1.
func (r *round) take(i int) vote {
	c, n := r.claim, r.claim.driver.nodes[i]
	if c.driver.crowded(i) {
		c.ended(i, false, false)
		return vote{node: i, err: &driver.Fault{Fate: driver.NotSent, Err: n.named(errSilent)}}
	}
	answer, late, err := n.ask(c.driver.life, takeScript,
		[]string{c.key.entry(), c.key.token(), c.key.tombstone(c.request.Owner)},
		c.request.Owner, r.number, entryTTL(c.request.TTL), c.request.Holder)
	v := vote{node: i, err: err}
	if a, ok := answer.([]any); ok && len(a) == 2 {
		first, _ := a[0].(int64)
		if v.entry, ok = a[1].(string); ok {
			v.left = first
		} else {
			v.token = first
			v.acquired, _ = a[1].(int64)
		}
	}
	c.ended(i, v.token != 0, late)
	switch {
	case err != nil:
	case v.token == 0 && v.entry == "":
		v.err = n.named(errOver)
	case v.token != 0:
		if v.err = n.young(); v.err != nil { // the entry may stay: it stops others
			v.token = 0
		}
	}
	return v
}

// confirm is phase 2.
func (r *round) confirm(i int) error {
	n := r.claim.driver.nodes[i]
	ok, _, err := r.claim.stamp(i, r.number, r.grant, r.claim.request.TTL, 0)
	switch {
	case err != nil:
		return err
	case !ok:
		return n.named(errNotOwned)
	}
	return n.young()
}

// stamp has node i write what tells the grant.
func (c *claim) stamp(i int, round int64, grant stamp, ttl time.Duration, repair int) (ok, late bool, err error) {
	d := c.driver
	answer, late, err := d.nodes[i].ask(d.life, confirmScript,
		[]string{c.key.entry(), c.key.token(), c.key.tombstone(c.request.Owner)},
		c.request.Owner, round, grant.token, grant.acquired, entryTTL(ttl), c.request.Holder, d.memory, repair)
	return answer == int64(1), late, err
}

// entryTTL is for how long entries last, in ms.
func entryTTL(ttl time.Duration) int64 { return endpoint.Millis(ttl + drift(ttl)) }

// confirmations waits until a majority has the token, or cannot any more.
func (r *round) confirmations(ctx context.Context) error {
	b := r.claim.driver.ballot()
	err := gather(ctx, r.confirmed, func(err error) bool {
		b.add(true, false, err)
		return b.carried() || b.broken()
	})
	if err == nil && !b.carried() {
		err = b.fault("the token was not written to a majority")
	}
	return err
}

// tally counts the votes of phase 1: yes is taken, no is another's.
type tally struct {
	ballot
	awaited
	stamp   // of the highest token
	refused []vote
}

// collect returns nil if a majority is taken, or why it cannot be.
func (t *tally) collect(ctx context.Context, votes <-chan vote) error {
	if err := gather(ctx, votes, t.add); err != nil {
		return err
	}
	if t.carried() {
		return nil
	}
	return t.refusal()
}

// add reports whether further votes change nothing.
func (t *tally) add(v vote) (over bool) {
	t.answered(v.node)
	t.ballot.add(v.token != 0, true, v.err)
	switch {
	case v.err != nil:
	case v.token == 0:
		t.refused = append(t.refused, v)
	case v.token > t.token:
		t.stamp = v.stamp
	}
	if t.carried() || t.rejected() || t.broken() || t.missing == 0 {
		return true
	}
	return t.yes+t.no >= t.quorum && t.no+len(t.failed) > t.rest()
}

// refusal says why there is no majority. A majority must have answered, and one of it must have
// said that another has the name, before that is the reason.
func (t *tally) refusal() error {
	if t.no == 0 || t.yes+t.no < t.quorum {
		return t.fault("no majority: %d of %d servers can be used", t.yes+t.no, t.nodes)
	}
	held := &distlock.HeldError{Remaining: t.remaining()}
	most := 0 // servers of the other claim that has the most
	for _, v := range t.refused {
		e, ok := parseEntry(v.entry)
		same, whole := 0, 0
		for _, w := range t.refused {
			if owner, _, _ := strings.Cut(w.entry, " "); ok && owner == e.Owner {
				same++
			}
			if other, ok := parseEntry(w.entry); ok && e.Token != 0 && other.Token == e.Token && other.Owner == e.Owner {
				whole++
			}
		}
		most = max(most, same)
		if whole >= t.quorum {
			held.Holder, held.Token = e.Holder, e.Token
		}
	}
	if most > t.rest() {
		return held
	}
	return &splitError{held}
}

// remaining returns when enough entries of others have ended for a majority; 0 if that is not
// known.
func (t *tally) remaining() time.Duration {
	var lefts []int64
	for _, v := range t.refused {
		if v.left >= 0 {
			lefts = append(lefts, v.left)
		}
	}
	slices.Sort(lefts)
	missing := t.quorum - t.yes
	if missing > len(lefts) {
		return 0
	}
	return time.Duration(max(lefts[missing-1], 1)) * time.Millisecond
}

// parseEntry reads "owner round token µs holder".
func parseEntry(text string) (names.Entry, bool) {
	owner, rest, _ := strings.Cut(text, " ")
	_, rest, _ = strings.Cut(rest, " ")
	return names.ParseEntry(owner + " " + rest)
}
