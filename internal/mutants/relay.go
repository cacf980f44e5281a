package mutants

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// relayStore is a store where a release grants the name to the next waiter itself, as
// scripts in a server do. It keeps a queue for each name.
type relayStore struct {
	flaw relayFlaw

	mu    sync.Mutex
	names map[string]*relayName
	token int64
	freed time.Time // the last release of any name
}

// relayName is what it keeps of a name.
type relayName struct {
	holder *waiter // nil if nobody holds it
	queue  []*waiter
	freed  time.Time // the last release
}

// waiter is an acquisition: a candidate, and then a holder.
type waiter struct {
	request driver.Request
	text    string
	token   int64
	seen    time.Time     // its last Try
	joined  time.Time     // its first Try that was refused
	granted time.Time     // zero while it waits
	since   time.Time     // when it was granted, as Inspect shows it
	expires time.Time     // of the hold
	wake    chan struct{} // one element: "look again"
	knows   chan struct{} // closed when it has been told of its grant
}

// relayFlaw replaces decisions of the store; what is nil or false stays right.
type relayFlaw struct {
	lease     func(last, next *waiter, now time.Time) time.Duration // of the waiter that the release of last grants the name
	fromReply bool                                                  // a waiter counts its lease from when it hears of the grant
	sameToken bool
	sameText  bool
	since     func(last, next *waiter) time.Time // when it has acquired the name
	next      func(queue []*waiter) int          // the index of the successor
	full      int                                // as many may wait; 0 is no limit
	deafen    func(s *relayStore, n *relayName, now time.Time) bool
	wakes     bool // a release grants nothing, but wakes the next
	eaten     bool // then a woken waiter that leaves wakes nobody
	swallow   bool // a waiter that leaves keeps what it was just granted
	handshake bool // a release waits for the next to take the name
	requeue   bool // a waiter that looks again goes to the end
	barge     bool // the first request for a free name gets it
	oneByOne  bool // an expiry hands the name on as well, and a place in the queue has no end
}

func newRelayStore(f relayFlaw) *relayStore {
	return &relayStore{flaw: f, names: make(map[string]*relayName)}
}

// name returns what is kept of a name, without what has expired.
func (s *relayStore) name(name string, now time.Time) *relayName {
	n := s.names[name]
	if n == nil {
		n = new(relayName)
		s.names[name] = n
	}
	for n.holder != nil && !now.Before(n.holder.expires) {
		last := n.holder
		n.holder = nil
		if s.flaw.oneByOne {
			s.handOn(n, last, last.expires)
		}
	}
	if s.flaw.oneByOne {
		return n
	}
	n.queue = slices.DeleteFunc(n.queue, func(p *waiter) bool { return !now.Before(p.seen.Add(p.request.TTL)) })
	return n
}

func (s *relayStore) grant(n *relayName, p *waiter, ttl time.Duration, now time.Time) {
	s.token++
	p.token, p.text, p.granted, p.since, p.expires = s.token, p.request.Holder, now, now, now.Add(ttl)
	n.queue = slices.DeleteFunc(n.queue, func(o *waiter) bool { return o == p })
	n.holder = p
}

// try is a claim's Try, in one step.
func (s *relayStore) try(p *waiter) (driver.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	n := s.name(p.request.Name, now)
	if h := n.holder; h != nil && h.request.Owner == p.request.Owner {
		select {
		case <-h.knows:
		default:
			close(h.knows)
		}
		if s.flaw.fromReply {
			return driver.Grant{Token: h.token, TTL: p.request.TTL}, nil
		}
		return driver.Grant{Token: h.token, TTL: h.expires.Sub(h.granted), Sent: h.granted}, nil
	}
	at := slices.IndexFunc(n.queue, func(o *waiter) bool { return o.request.Owner == p.request.Owner })
	if n.holder == nil && (len(n.queue) == 0 || at == s.first(n.queue) || s.flaw.barge) {
		s.grant(n, p, p.request.TTL, now)
		return driver.Grant{Token: p.token, TTL: p.request.TTL}, nil
	}
	if !p.request.NoWait && (at >= 0 || s.flaw.full == 0 || len(n.queue) < s.flaw.full) {
		p.seen = now
		if at >= 0 && s.flaw.requeue {
			n.queue = slices.Delete(n.queue, at, at+1)
			at = -1
		}
		if at < 0 {
			p.joined = now
			n.queue = append(n.queue, p)
		}
	}
	return driver.Grant{}, &distlock.HeldError{Remaining: n.blockedFor(now, s.flaw.oneByOne)}
}

func (s *relayStore) first(queue []*waiter) int {
	if s.flaw.next != nil {
		return s.flaw.next(queue)
	}
	return 0
}

// blockedFor is when a waiter has to look, if nobody gives a sign of life.
func (n *relayName) blockedFor(now time.Time, oneByOne bool) time.Duration {
	d := distlock.MaxTTL
	if n.holder != nil {
		d = n.holder.expires.Sub(now)
	}
	for _, p := range n.queue {
		if oneByOne {
			d = min(d, p.request.TTL)
			continue
		}
		d = min(d, p.seen.Add(p.request.TTL).Sub(now))
	}
	return max(d, 1)
}

func (s *relayStore) renew(p *waiter, ttl time.Duration) (driver.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	h := s.name(p.request.Name, now).holder
	if h == nil || h.request.Owner != p.request.Owner {
		return driver.Grant{}, distlock.ErrLost
	}
	if e := now.Add(ttl); e.After(h.expires) {
		h.expires = e
	}
	return driver.Grant{Token: h.token, TTL: h.expires.Sub(now)}, nil
}

// release removes every trace of p, hands the name on, and reports whether it was
// held; next is the waiter that has got it.
func (s *relayStore) release(p *waiter, won bool) (held bool, next *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	n := s.name(p.request.Name, now)
	n.queue = slices.DeleteFunc(n.queue, func(o *waiter) bool { return o.request.Owner == p.request.Owner })
	h := n.holder
	switch {
	case h == nil && s.flaw.wakes && !s.flaw.eaten:
		s.handOn(n, p, now) // it may have been woken
		return false, nil
	case h == nil || h.request.Owner != p.request.Owner, s.flaw.swallow && !won:
		return false, nil
	}
	n.holder = nil
	return true, s.handOn(n, h, now)
}

// handOn grants a name that last has had to the next in the queue.
func (s *relayStore) handOn(n *relayName, last *waiter, now time.Time) *waiter {
	deaf := s.flaw.deafen != nil && s.flaw.deafen(s, n, now)
	n.freed, s.freed = now, now
	if len(n.queue) == 0 || deaf {
		return nil
	}
	next := n.queue[s.first(n.queue)]
	if s.flaw.wakes {
		next.wakeUp()
		return nil
	}
	ttl := next.request.TTL
	if s.flaw.lease != nil {
		ttl = s.flaw.lease(last, next, now)
	}
	s.grant(n, next, ttl, now)
	if s.flaw.sameToken {
		s.token--
		next.token = last.token
	}
	if s.flaw.sameText {
		next.text = last.text
	}
	if s.flaw.since != nil {
		next.since = s.flaw.since(last, next)
	}
	next.wakeUp()
	return next
}

func (p *waiter) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (s *relayStore) status(name string) distlock.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	n := s.name(name, now)
	st := distlock.Status{Name: name, Waiters: len(n.queue)}
	if h := n.holder; h != nil {
		st.Held, st.Holder, st.Token = true, h.text, h.token
		st.AcquiredAt, st.Remaining = h.since, h.expires.Sub(now)
	}
	return st
}

func (s *relayStore) list(prefix string) []distlock.Status {
	s.mu.Lock()
	var names []string
	for name := range s.names {
		if len(name) >= len(prefix) && name[:len(prefix)] == prefix {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	slices.Sort(names)
	var sts []distlock.Status
	for _, name := range names {
		if st := s.status(name); st.Held {
			sts = append(sts, st)
		}
	}
	return sts
}

func (s *relayStore) breakHold(name string, token int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	n := s.name(name, now)
	if n.holder == nil || n.holder.token != token {
		return false
	}
	last := n.holder
	n.holder = nil
	s.handOn(n, last, now)
	return true
}

// relayDriver is a driver over such a store.
type relayDriver struct{ store *relayStore }

// Capabilities implements driver.Driver.
func (d *relayDriver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "relay", Fair: true, Push: true, Durability: driver.Volatile, MinTTL: time.Millisecond, TTLGranularity: time.Nanosecond}
}

// Claim implements driver.Driver.
func (d *relayDriver) Claim(r driver.Request) driver.Claim {
	return &relayClaim{store: d.store, waiter: &waiter{request: r, wake: make(chan struct{}, 1), knows: make(chan struct{})}}
}

// Renew implements driver.Driver.
func (d *relayDriver) Renew(ctx context.Context, batch []driver.Renewal) {
	driver.RenewEach(ctx, batch, func(_ context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		return d.store.renew(c.(*relayClaim).waiter, ttl)
	})
}

// Inspect implements driver.Inspector.
func (d *relayDriver) Inspect(_ context.Context, name string) (distlock.Status, error) {
	return d.store.status(name), nil
}

// List implements driver.Inspector.
func (d *relayDriver) List(_ context.Context, prefix string) ([]distlock.Status, error) {
	return d.store.list(prefix), nil
}

// Break implements driver.Breaker.
func (d *relayDriver) Break(_ context.Context, name string, token int64) error {
	if !d.store.breakHold(name, token) {
		return distlock.ErrLost
	}
	return nil
}

type relayClaim struct {
	store  *relayStore
	waiter *waiter
	won    bool
}

// Try implements driver.Claim.
func (c *relayClaim) Try(context.Context) (driver.Grant, error) {
	g, err := c.store.try(c.waiter)
	c.won = c.won || err == nil
	return g, err
}

// Wait implements driver.Claim.
func (c *relayClaim) Wait(ctx context.Context) error {
	select {
	case <-c.waiter.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Release implements driver.Claim.
func (c *relayClaim) Release(ctx context.Context) error {
	held, next := c.store.release(c.waiter, c.won)
	if held && next != nil && c.store.flaw.handshake {
		// Until the next has looked, or nobody waits for that any more.
		select {
		case <-next.knows:
		case <-ctx.Done():
		}
	}
	if c.won && !held {
		return distlock.ErrLost
	}
	c.won = false
	return nil
}

// relayed is the design of a driver with releases that hand the name on.
func relayed(f relayFlaw) design {
	return design{
		store:  func() store { return &relayDriver{newRelayStore(f)} },
		driver: func(e *env) driver.Driver { return e.link.Driver(e.mem) },
	}
}
