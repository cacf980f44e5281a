package mutants

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/virtual"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/memlock"
)

// ledgerStore is a store that keeps for each name what has come before: a row that stays when
// the name is free. So a flaw can depend on it.
type ledgerStore struct {
	flaw ledgerFlaw

	mu    sync.Mutex
	stuck *virtual.Stuck
	rows  map[string]*row
	token int64
	gone  map[string]bool          // owners that were released: what they sent before comes too late
	wakes map[string]chan struct{} // of owners, one element each: "look again"
	notes map[string]bool          // of a flaw
}

// row is what it keeps of a name.
type row struct {
	name  string
	hold  *hold  // nil if nobody holds it
	last  hold   // the one before that, or before now
	how   string // how that has ended: "released", "expired" or "broken"
	freed time.Time
	queue []*place
	token int64 // the last one granted
}

// hold is an acquisition that holds a name.
type hold struct {
	request           driver.Request
	client            int
	token             int64
	acquired, expires time.Time
	text              string
}

// place is an acquisition that waits for one.
type place struct {
	request driver.Request
	client  int
	until   time.Time
}

// ledgerFlaw replaces decisions of the store; what is nil stays right.
type ledgerFlaw struct {
	try     func(s *ledgerStore, r *row, c *ledgerClaim) (g driver.Grant, done bool) // a look at a name that may be free
	refused func(s *ledgerStore, r *row, c *ledgerClaim)                             // after it
	told    func(r *row, c *ledgerClaim, held *driver.Held)                          // with that
	strange func(r *row) bool                                                        // it takes a claim's own hold for another's
	lease   func(ttl time.Duration) time.Duration                                    // that a grant keeps
	granted func(r *row)
	renewed func(r *row, ttl time.Duration)
	left    func(s *ledgerStore, r *row, c *ledgerClaim) (silent bool) // by a waiter that is in the queue still
	buries  func(s *ledgerStore, c *ledgerClaim) bool                  // it remembers a release
	deaf    func(s *ledgerStore, r *row, p *place) bool                // the next waiter, which is not woken
	status  func(s *ledgerStore, r *row, st *distlock.Status)
	unlists func(r *row) bool
	close   func(s *ledgerStore, client int)
	next    func(r *row) int // the index of the waiter that comes first
	broken  func(s *ledgerStore, r *row)
	firm    func(s *ledgerStore, r *row) bool // Break does not find the hold
}

// ledger is the design of a driver over such a store.
func ledger(f ledgerFlaw) design {
	return design{
		store: func() store {
			return &ledgerDriver{store: &ledgerStore{flaw: f, rows: make(map[string]*row), gone: make(map[string]bool),
				wakes: make(map[string]chan struct{}), notes: make(map[string]bool)}}
		},
		driver: func(e *env) driver.Driver {
			s := e.mem.(*ledgerDriver).store
			s.mu.Lock()
			defer s.mu.Unlock()
			s.stuck = &e.world.stuck
			e.link.Remembers = true
			d := &ledgerDriver{store: s, client: e.id}
			return e.link.Driver(d)
		},
	}
}

// ledgerDriver is a driver over it, of one client; that of none is right in what it shows.
type ledgerDriver struct {
	store  *ledgerStore
	client int
}

var _ io.Closer = (*ledgerDriver)(nil)

// send makes one request.
func (s *ledgerStore) send(ctx context.Context, op, name string, f func(now time.Time)) error {
	if err := ctx.Err(); err != nil {
		return &driver.Fault{Fate: driver.NotSent, Err: err}
	}
	locked := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f(time.Now())
	}
	if s.stuck == nil {
		locked()
		return nil
	}
	return s.stuck.Intercept(ctx, memlock.Call{Op: op, Name: name}, locked)
}

// row returns what is kept of a name, without what has expired.
func (s *ledgerStore) row(name string, now time.Time) *row {
	r := s.rows[name]
	if r == nil {
		r = &row{name: name}
		s.rows[name] = r
	}
	if r.hold != nil && !now.Before(r.hold.expires) {
		end := r.hold.expires
		r.end("expired")
		r.freed = end
	}
	return r
}

// live drops waiters from the queue that have not shown themselves.
func (s *ledgerStore) live(r *row, now time.Time) {
	r.queue = slices.DeleteFunc(r.queue, func(p *place) bool { return !now.Before(p.until) })
}

func (r *row) end(how string) { r.last, r.hold, r.how, r.freed = *r.hold, nil, how, time.Now() }

func (r *row) at(owner string) int {
	return slices.IndexFunc(r.queue, func(p *place) bool { return p.request.Owner == owner })
}

var errGone = errors.New("the claim has been released")

// try is a claim's Try, in one step.
func (s *ledgerStore) try(c *ledgerClaim, now time.Time) (driver.Grant, error) {
	if s.gone[c.request.Owner] {
		return driver.Grant{}, errGone
	}
	r := s.row(c.request.Name, now)
	s.live(r, now)
	if s.flaw.try != nil {
		if g, done := s.flaw.try(s, r, c); done {
			return g, nil
		}
	}
	at := r.at(c.request.Owner)
	switch h := r.hold; {
	case h != nil && h.request.Owner == c.request.Owner && (s.flaw.strange == nil || !s.flaw.strange(r)):
		if e := now.Add(c.request.TTL); e.After(h.expires) {
			h.expires = e
		}
		return driver.Grant{Token: h.token, TTL: c.request.TTL}, nil
	case h == nil && (len(r.queue) == 0 || at == s.first(r)):
		return s.grant(r, c, now), nil
	}
	return driver.Grant{}, s.refuse(r, c, at, now)
}

func (s *ledgerStore) grant(r *row, c *ledgerClaim, now time.Time) driver.Grant {
	ttl := c.request.TTL
	if s.flaw.lease != nil {
		ttl = s.flaw.lease(ttl)
	}
	if at := r.at(c.request.Owner); at >= 0 {
		r.queue = slices.Delete(r.queue, at, at+1)
	}
	s.token++
	r.token = s.token
	r.hold = &hold{request: c.request, client: c.driver.client, token: s.token, acquired: now, expires: now.Add(ttl), text: c.request.Holder}
	if s.flaw.granted != nil {
		s.flaw.granted(r)
	}
	return driver.Grant{Token: s.token, TTL: c.request.TTL}
}

func (s *ledgerStore) refuse(r *row, c *ledgerClaim, at int, now time.Time) error {
	if !c.request.NoWait {
		if at < 0 {
			at = len(r.queue)
			r.queue = append(r.queue, &place{request: c.request, client: c.driver.client})
		}
		r.queue[at].until = now.Add(c.request.TTL)
	}
	if s.flaw.refused != nil {
		s.flaw.refused(s, r, c)
	}
	held := &driver.Held{HeldError: distlock.HeldError{Remaining: r.blockedFor(c.request.Owner, now)}}
	if s.flaw.told != nil {
		s.flaw.told(r, c, held)
	}
	return held
}

// blockedFor is when a waiter has to look, if nobody gives a sign of life.
func (r *row) blockedFor(owner string, now time.Time) time.Duration {
	d := distlock.MaxTTL
	if r.hold != nil {
		d = r.hold.expires.Sub(now)
	}
	for _, p := range r.queue {
		if p.request.Owner == owner {
			break
		}
		d = min(d, p.until.Sub(now))
	}
	return max(d, 1)
}

func (s *ledgerStore) renew(c *ledgerClaim, ttl time.Duration, now time.Time) (driver.Grant, error) {
	r := s.row(c.request.Name, now)
	h := r.hold
	if h == nil || h.request.Owner != c.request.Owner {
		return driver.Grant{}, distlock.ErrLost
	}
	if e := now.Add(ttl); e.After(h.expires) {
		h.expires = e
	}
	if s.flaw.renewed != nil {
		s.flaw.renewed(r, ttl)
	}
	return driver.Grant{Token: h.token, TTL: ttl}, nil
}

// release removes every trace of the claim.
func (s *ledgerStore) release(c *ledgerClaim, now time.Time) error {
	if s.flaw.buries == nil || s.flaw.buries(s, c) {
		s.gone[c.request.Owner] = true
	}
	r := s.row(c.request.Name, now)
	held := r.hold != nil && r.hold.request.Owner == c.request.Owner
	silent := !c.won && s.flaw.left != nil && s.flaw.left(s, r, c)
	if at := r.at(c.request.Owner); at >= 0 {
		r.queue = slices.Delete(r.queue, at, at+1)
	}
	if held {
		r.end("released")
	}
	if silent {
		return nil
	}
	s.handOff(r, now)
	if c.won && !held {
		return distlock.ErrLost
	}
	return nil
}

// handOff wakes the next in the queue of a name that may be free, and it alone.
func (s *ledgerStore) handOff(r *row, now time.Time) {
	s.live(r, now)
	if r.hold != nil || len(r.queue) == 0 {
		return
	}
	if next := r.queue[s.first(r)]; s.flaw.deaf == nil || !s.flaw.deaf(s, r, next) {
		s.wake(next.request.Owner)
	}
}

func (s *ledgerStore) first(r *row) int {
	if s.flaw.next != nil {
		return s.flaw.next(r)
	}
	return 0
}

func (s *ledgerStore) wake(owner string) {
	select {
	case s.wakes[owner] <- struct{}{}:
	default:
	}
}

func (s *ledgerStore) status(name string, right bool, now time.Time) distlock.Status {
	r := s.rows[name]
	if r == nil {
		return distlock.Status{Name: name}
	}
	s.row(name, now)
	st := distlock.Status{Name: name, Token: r.token}
	for _, p := range r.queue {
		if now.Before(p.until) {
			st.Waiters++
		}
	}
	if h := r.hold; h != nil {
		st.Held, st.Holder, st.Token = true, h.text, h.token
		st.AcquiredAt, st.Remaining = h.acquired, h.expires.Sub(now)
	}
	if s.flaw.status != nil && !right {
		s.flaw.status(s, r, &st)
	}
	return st
}
