package stores_test

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// flaws are the operations that the driver may do in two requests, or steps: it looks at the record, and writes it
// afterwards, while others may do the same. Each is named by the check that has to catch it.
var flaws = []string{"pair/try-free", "pair/try-released", "pair/try-expired", "pair/unlock", "pair/hand-over", "pair/renewal", "pair/extend",
	"pair/renewal-broken", "pair/extend-broken", "pair/unlock-broken", "pair/break", "pair/sweep"}

// cells are a store as a newcomer sees it: values by name. An empty value is none.
type cells interface {
	get(ctx context.Context, name string) (string, error)
	set(ctx context.Context, name, value string) error                   // whatever is there
	swap(ctx context.Context, name, was, is string) (ok bool, err error) // if was is there
	names(ctx context.Context) ([]string, error)
	Close() error
}

// record is the value of a name, as JSON. It stays when the lock is released.
type record struct {
	Owner   string
	Token   int64
	Expires time.Time // without an owner: since when the name is idle

	Next      string // who has waited for longest, and gets the name from the one who unlocks it
	NextTTL   time.Duration
	NextUntil time.Time

	Undone int // so that what a claim has sent before it was undone finds another value
}

func read(value string) (r record) {
	_ = json.Unmarshal([]byte(value), &r) // an empty value is an empty record
	return r
}

func (r *record) text() string {
	text, _ := json.Marshal(r) // plain fields cannot fail
	return string(text)
}

func (r *record) held() bool { return r.Owner != "" && time.Now().Before(r.Expires) }

func (r *record) awaited() bool { return r.Next != "" && time.Now().Before(r.NextUntil) }

// grant gives the name to an owner. The token is above that of a record which was swept.
func (r *record) grant(owner string, ttl time.Duration) {
	r.Owner, r.Expires = owner, time.Now().Add(ttl)
	r.Token = max(r.Token+1, time.Now().UnixMicro())
}

func (r *record) free() { r.Owner, r.Expires = "", time.Now() }

// store is a newcomer's driver: right, but for the one operation that is its flaw, if any.
type store struct {
	cells
	flaw    string // what is after the group in one of flaws, without careful
	careful bool   // it looks at its context before it acts; so it is seen only where that goes on
}

// careful ends the names of flaws.
const careful = "-broken"

// Capabilities implements driver.Driver.
func (*store) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "cells", Durability: driver.Restart, MinTTL: 50 * time.Millisecond}
}

// Claim implements driver.Driver.
func (s *store) Claim(r driver.Request) driver.Claim { return &claim{s, r, false} }

// Renew implements driver.Driver.
func (s *store) Renew(ctx context.Context, batch []driver.Renewal) {
	driver.RenewEach(ctx, batch, func(ctx context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		return c.(*claim).renew(ctx, ttl)
	})
}

// update has f change the record of a name, in one step unless it is done loosely. That may depend on what is in it.
func (s *store) update(ctx context.Context, name string, loosely func(record) bool, f func(*record) error) (token int64, err error) {
	return driver.Detach(ctx, func() (int64, error) {
		for {
			was, err := s.get(ctx, name)
			if err != nil {
				return 0, err
			}
			r := read(was)
			before, loose := r.text(), loosely(r)
			answer := f(&r)
			switch is := r.text(); {
			case is == before:
				return r.Token, answer
			case loose && s.careful && ctx.Err() != nil:
				return 0, ctx.Err()
			case loose:
				return r.Token, cmp.Or(s.set(ctx, name, is), answer)
			default:
				if ok, err := s.swap(ctx, name, was, is); ok || err != nil {
					return r.Token, cmp.Or(err, answer)
				}
			}
		}
	})
}

// Break implements driver.Breaker.
func (s *store) Break(ctx context.Context, name string, token int64) error {
	_, err := s.update(ctx, name, func(record) bool { return s.flaw == "break" }, func(r *record) error {
		if !r.held() || r.Token != token {
			return distlock.ErrLost
		}
		r.free()
		r.Token++
		return nil
	})
	return err
}

// Sweep implements driver.Sweeper.
func (s *store) Sweep(ctx context.Context, idle time.Duration) (int, error) {
	return driver.Detach(ctx, func() (n int, err error) {
		names, err := s.names(ctx)
		for _, name := range names {
			was, err := s.get(ctx, name)
			if err != nil {
				return n, err
			}
			r := read(was)
			if was == "" || r.held() || r.awaited() || time.Since(r.Expires) < idle {
				continue
			}
			ok := true
			if s.flaw == "sweep" {
				err = s.set(ctx, name, "")
			} else {
				ok, err = s.swap(ctx, name, was, "")
			}
			if err != nil {
				return n, err
			}
			if ok {
				n++
			}
		}
		return n, err
	})
}

type claim struct {
	*store
	driver.Request
	won bool
}

// Try implements driver.Claim.
func (c *claim) Try(ctx context.Context) (driver.Grant, error) {
	loosely := func(r record) bool {
		return c.flaw == "try-free" && r.Token == 0 || c.flaw == "try-released" && r.Token > 0 && r.Owner == "" ||
			c.flaw == "try-expired" && r.Owner != "" && !r.held()
	}
	token, err := c.update(ctx, c.Name, loosely, func(r *record) error {
		switch {
		case !r.held():
			r.grant(c.Owner, c.TTL)
		case r.Owner == c.Owner:
			r.Expires = time.Now().Add(c.TTL)
		default:
			if !c.NoWait && (r.Next == c.Owner || !r.awaited()) {
				r.Next, r.NextTTL, r.NextUntil = c.Owner, c.TTL, time.Now().Add(c.TTL)
			}
			return &distlock.HeldError{Remaining: time.Until(r.Expires)}
		}
		if r.Next == c.Owner {
			r.Next = ""
		}
		return nil
	})
	c.won = c.won || err == nil
	return driver.Grant{Token: token, TTL: c.TTL}, err
}

// Wait implements driver.Claim.
func (c *claim) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (c *claim) renew(ctx context.Context, ttl time.Duration) (driver.Grant, error) {
	loosely := func(record) bool {
		return c.flaw == "renewal" && ttl <= c.TTL || c.flaw == "extend" && ttl > c.TTL
	}
	token, err := c.update(ctx, c.Name, loosely, func(r *record) error {
		if !r.held() || r.Owner != c.Owner {
			return distlock.ErrLost
		}
		if end := time.Now().Add(ttl); end.After(r.Expires) {
			r.Expires = end
		}
		return nil
	})
	return driver.Grant{Token: token, TTL: ttl}, err
}

// Release implements driver.Claim.
func (c *claim) Release(ctx context.Context) error {
	won := c.won
	loosely := func(r record) bool {
		return r.held() && r.Owner == c.Owner && (c.flaw == "unlock" && !r.awaited() || c.flaw == "hand-over" && r.awaited())
	}
	_, err := c.update(ctx, c.Name, loosely, func(r *record) error {
		switch {
		case r.held() && r.Owner == c.Owner && r.awaited():
			r.grant(r.Next, r.NextTTL)
			r.Next = ""
		case r.held() && r.Owner == c.Owner:
			r.free()
		case won:
			return distlock.ErrLost
		default:
			r.Undone++
			if r.Next == c.Owner {
				r.Next = ""
			}
			if !r.held() { // not to be swept while a request of the claim may be under way
				r.Owner, r.Expires = "", time.Now().Add(c.TTL)
			}
		}
		return nil
	})
	return err
}
