package pglock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/turns"
)

const (
	// MinTTL is the shortest lease: a commit may take tens of milliseconds on a busy
	// disk, and a renewal every third of the TTL must get through in time.
	MinTTL = 100 * time.Millisecond

	// minIdle is the shortest idle time of a sweep. Tokens rest on it: see Try.
	minIdle = time.Second
)

// store sends the statements. It is safe for concurrent use.
type store struct {
	pool       *pgxpool.Pool
	renewals   *pgxpool.Pool // the same pool if that is not ours
	own        bool          // the pools were opened here
	text       map[string]string
	asked      sync.Map  // of the pool: the connections that are asked whether they live, and what is called once one answers
	listener   *listener // nil if waiters poll
	turns      *turns.Turns
	durability driver.Durability
}

var (
	_ driver.Driver      = (*store)(nil)
	_ driver.Inspector   = (*store)(nil)
	_ driver.Breaker     = (*store)(nil)
	_ driver.Sweeper     = (*store)(nil)
	_ driver.LockWrapper = (*store)(nil)
	_ driver.Claim       = (*claim)(nil)
)

// Capabilities implements driver.Driver.
func (d *store) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "postgres", Push: d.listener != nil, Durability: d.durability, MinTTL: MinTTL}
}

// Claim implements driver.Driver.
func (d *store) Claim(r driver.Request) driver.Claim {
	owner, _ := hex.DecodeString(r.Owner) // the engine has made it of random bytes
	return &claim{store: d, request: r, owner: d.marked(owner), woken: make(chan struct{}, 1)}
}

// marked puts the id of our listener into an owner: it names the channel that a release has to notify.
func (d *store) marked(owner []byte) []byte {
	if d.listener != nil {
		copy(owner, d.listener.id[:])
	}
	return owner
}

// WrapLock implements driver.LockWrapper.
func (d *store) WrapLock(h *driver.Handle, c driver.Claim) distlock.Lock {
	return &Lock{Handle: h, claim: c.(*claim)}
}

// claim is one acquisition of a name. Its fields are used by one call at a time.
type claim struct {
	store     *store
	request   driver.Request
	owner     []byte
	won       bool          // a Try has returned a grant
	since     int64         // when that was, in microseconds, as the row has it
	fresh     bool          // a fresh token is needed: that of the row may be as old as a Try that took long
	ambiguous bool          // a Try has failed without an answer: its grant may stand, or be yet to come
	refused   bool          // a Try has found the name held
	listed    bool          // it is on the row's list, or may be
	told      bool          // of a release, since it was listed
	heard     bool          // the same, since the last Try; guarded by listener.mu
	woken     chan struct{} // it is to look again
}

// Where a claim that is refused wants to be on the row's list.
const (
	nowhere = iota
	last
	first
	replaceOldest // last, in the place of the oldest if the list is full
)

func (c *claim) name() []byte { return []byte(c.request.Name) }

// Try implements driver.Claim.
//
// A row that was inserted has the time and the token of the start of the statement, which may
// then have waited: for another's insert that was rolled back, or a sweep. Its lease is then
// partly over, and a sweep may have removed a row with a higher token. Such a grant is asked for
// again, with a fresh token. A sweep leaves rows that are younger than minIdle, so the token of
// a quick one is not old. What a Try has left that had no answer may be as old as that Try.
//
// The first grant stays in the store, so an error after it is of fate Unknown, whatever it says.
func (c *claim) Try(ctx context.Context) (driver.Grant, error) {
	for stands := false; ; stands = true {
		sent := time.Now()
		grant, inserted, err := c.try(ctx)
		if err == nil && inserted && time.Since(sent) > min(c.request.TTL/8, minIdle/2) {
			c.fresh = true
			continue
		}
		if err != nil && stands {
			c.ambiguous = true
			err = &driver.Fault{Fate: driver.Unknown, Err: err}
		}
		c.won = c.won || err == nil
		return grant, err
	}
}

func (c *claim) try(ctx context.Context) (grant driver.Grant, inserted bool, err error) {
	d, place, live := c.store, nowhere, false
	if d.listener != nil && !c.request.NoWait {
		// On the list also while nothing listens yet: operators see then that it waits, and it polls.
		live, place = d.listener.join(c), replaceOldest
		switch {
		case c.told:
			place = first
		case c.listed:
			place = last
		}
	}
	ttl := roundUp(c.request.TTL)
	refusal := &driver.Held{NoWake: true}
	var remaining int64
	var holder string // in hex
	var listed, undone bool
	err = d.sendAbout(ctx, c.request.Name, turns.Trying,
		query{d.text["acquire"], []any{c.name(), c.owner, []byte(c.request.Holder), ttl.Microseconds(), c.fresh},
			func(row pgx.Rows) error { return row.Scan(&grant.Token, &inserted, &c.since) }},
		query{d.text["held"], []any{c.name(), c.owner, place}, func(row pgx.Rows) error {
			err := row.Scan(&remaining, &holder, &refusal.Token, &listed, &undone)
			refusal.NoWake = !listed || !live
			return err
		}})
	switch {
	case err != nil:
		if driver.FateOf(err) == driver.Unknown {
			c.fresh, c.ambiguous = true, true
		}
		c.leftNothing()
		if c.refused && hasCode(err, noTable) { // it was there, so it may be being made anew
			err = &driver.Fault{Fate: driver.NotNow, Err: err}
		}
		return driver.Grant{}, false, err
	case grant.Token != 0:
		grant.TTL = ttl
		return grant, inserted, nil
	case undone:
		c.beginAnew()
		return driver.Grant{}, false, errBroken
	case refusal.Token == 0:
		c.leftNothing()
		return driver.Grant{}, false, errMoved
	}
	c.refused, c.listed, c.told = true, c.listed || listed, c.told && !listed
	if d.listener != nil && !c.request.NoWait {
		d.listener.begin()
	}
	refusal.Remaining, refusal.Holder = time.Duration(remaining)*time.Microsecond, unhex(holder)
	return driver.Grant{}, false, refusal
}

// leftNothing has the listener forget a claim that nobody releases, as it has left nothing at the server.
func (c *claim) leftNothing() {
	if !c.fresh && !c.listed {
		c.store.listener.leave(c)
	}
}

// beginAnew goes on as another owner: Break has ended a hold that the claim has not heard of, and what was sent for the
// owner that it had is refused from now on.
func (c *claim) beginAnew() {
	c.store.listener.leave(c)
	owner := make([]byte, len(c.owner))
	_, _ = rand.Read(owner) // it never fails
	c.owner, c.fresh, c.ambiguous, c.listed, c.told = c.store.marked(owner), false, false, false, false
}

// unhex returns the bytes that a statement has told in hex.
func unhex(s string) string {
	b, _ := hex.DecodeString(s) // the server has made it
	return string(b)
}

// roundUp brings a TTL to what the server counts in. A lease must not be shorter than the
// caller asked for.
func roundUp(ttl time.Duration) time.Duration {
	return (ttl + time.Microsecond - 1).Truncate(time.Microsecond)
}

// Wait implements driver.Claim.
func (c *claim) Wait(ctx context.Context) error {
	select {
	case <-c.woken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Release implements driver.Claim. A claim that was told "held" at every Try has left nothing but
// its place among the waiters. Where a late request may come, undo.sql keeps it from being
// applied.
func (c *claim) Release(ctx context.Context) error {
	d := c.store
	d.listener.leave(c)
	statement := "release"
	switch {
	case c.ambiguous:
		statement = "undo"
	case !c.won && c.listed:
		statement = "leave"
	case !c.won:
		return nil
	}
	held, err := d.tell(ctx, c.request.Name, statement, c.name(), c.owner)
	switch {
	case err != nil:
		return err
	case c.won && !held:
		return distlock.ErrLost
	}
	c.won, c.fresh, c.ambiguous, c.listed = false, false, false, false
	return nil
}

// tell sends a statement about a name that tells a waiter, and returns what it answers, false if it has no row. If the server's
// queue of notifications is full, nobody is told: the row is the truth, and waiters look by themselves.
func (d *store) tell(ctx context.Context, name, statement string, args ...any) (answer bool, err error) {
	scan := func(row pgx.Rows) error {
		var told *string
		return row.Scan(&answer, &told)
	}
	err = d.sendAbout(ctx, name, turns.Releasing, query{d.text[statement], args, scan})
	if hasCode(err, queueFull) {
		answer = false
		err = d.sendAbout(ctx, name, turns.Releasing, query{strings.ReplaceAll(d.text[statement], tell, "NULL"), args, scan})
	}
	return answer, err
}
