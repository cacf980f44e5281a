package memlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// Store stands for a lock server: Lockers on the same Store contend. It is safe
// for concurrent use and needs no closing.
type Store struct {
	intercept func(ctx context.Context, c Call, apply func()) error

	mu      sync.Mutex
	records map[string]*record
	token   int64 // of the last grant of any name, so that it rises for each
}

// StoreOptions configure a Store. Nil means the defaults.
type StoreOptions struct {
	// Intercept, if set, stands between the Lockers and the Store, as a network does.
	// It is called for every request and must call apply, once, for the request to take
	// effect. If it returns an error, the Locker gets that instead of the reply. So a
	// request is lost by not calling apply, a reply by returning an error after it.
	// A driver.Fault says which it was; any other error says nothing.
	// Either may be delayed, also past the end of ctx. It must be safe for concurrent
	// use.
	Intercept func(ctx context.Context, c Call, apply func()) error
}

// Call names a request, for Intercept.
type Call struct {
	Op    string // "try", "renew", "release", "inspect", "list" or "break"
	Name  string // of the lock; empty for the renewal of more than one
	Owner string // of the acquisition; empty if there is none, or more than one
}

// NewStore returns an empty Store.
func NewStore(o *StoreOptions) *Store {
	s := &Store{records: make(map[string]*record)}
	if o != nil {
		s.intercept = o.Intercept
	}
	return s
}

// SetRemaining has the lease of the present holder of name end in left, as if the clock of the store had jumped: for a test of
// what a program does that loses its lock. It wakes nobody, and does nothing if nobody holds the name.
func (s *Store) SetRemaining(name string, left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if r := s.current(name, now); r != nil && r.owner != "" {
		r.expires = now.Add(left)
	}
}

// record is what the store keeps of a name while it is held or waited for.
type record struct {
	owner    string // empty: nobody holds it
	holder   string
	token    int64
	acquired time.Time
	expires  time.Time
	queue    []*waiter // first come, first served
}

// waiter is a claim in the queue. It is dropped when the claim has not shown itself
// for its own TTL: its process is dead.
type waiter struct {
	claim *claim
	until time.Time
}

func (s *Store) call(ctx context.Context, c Call, apply func()) error {
	if err := ctx.Err(); err != nil {
		return &driver.Fault{Fate: driver.NotSent, Err: err}
	}
	locked := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		apply()
	}
	if s.intercept == nil {
		locked()
		return nil
	}
	return s.intercept(ctx, c, locked)
}

// ask makes a request and returns its answer. The request may be applied when nobody waits
// for that any more.
func ask[T any](ctx context.Context, s *Store, c Call, apply func() T) (T, error) {
	var answer, none T
	if err := s.call(ctx, c, func() { answer = apply() }); err != nil {
		return none, err
	}
	return answer, nil
}

// current returns the record of name without what has expired, or nil if nothing is
// left.
func (s *Store) current(name string, now time.Time) *record {
	r := s.records[name]
	if r == nil {
		return nil
	}
	if r.owner != "" && !now.Before(r.expires) {
		r.owner = ""
	}
	r.queue = slices.DeleteFunc(r.queue, func(w *waiter) bool { return !now.Before(w.until) })
	if r.owner == "" && len(r.queue) == 0 {
		delete(s.records, name)
		return nil
	}
	return r
}

// errReleased is the answer to a Try during which its claim was released. Its grant would
// block the name, and nobody would release it.
var errReleased = errors.New("memlock: the claim has been released")

// releasesOf returns how often c has been released when a Try of it is sent.
func (s *Store) releasesOf(c *claim) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.releases
}

func (s *Store) try(c *claim, releases int) (driver.Grant, error) {
	if c.releases != releases {
		return driver.Grant{}, errReleased
	}
	now := time.Now()
	r := s.current(c.request.Name, now)
	if r == nil {
		r = new(record)
		s.records[c.request.Name] = r
	}
	mine := func(w *waiter) bool { return w.claim == c }
	at := slices.IndexFunc(r.queue, mine)
	switch {
	case r.owner == c.request.Owner:
		r.outlast(now.Add(c.request.TTL)) // a late copy may come after an extension
	case r.owner == "" && (at == 0 || at < 0 && len(r.queue) == 0):
		r.queue = slices.DeleteFunc(r.queue, mine)
		s.token++
		r.owner, r.holder, r.token = c.request.Owner, c.request.Holder, s.token
		r.acquired, r.expires = now, now.Add(c.request.TTL)
	default:
		if !c.request.NoWait {
			if at < 0 {
				at = len(r.queue)
				r.queue = append(r.queue, &waiter{claim: c})
			}
			r.queue[at].until = now.Add(c.request.TTL)
		}
		return driver.Grant{}, &distlock.HeldError{Remaining: r.blockedFor(c, now)}
	}
	return driver.Grant{Token: r.token, TTL: c.request.TTL}, nil
}

// blockedFor is the time until c has to look again, even if nothing wakes it. By then
// the lease of the holder ends, or that of a waiter before c. Such a waiter may have
// died. A release wakes the first in the queue alone, and the dead do not pass it on.
func (r *record) blockedFor(c *claim, now time.Time) time.Duration {
	var end time.Time
	if r.owner != "" {
		end = r.expires
	}
	for _, w := range r.queue {
		if w.claim == c {
			break
		}
		if end.IsZero() || w.until.Before(end) {
			end = w.until
		}
	}
	return max(end.Sub(now), 1)
}

func (s *Store) renew(c *claim, ttl time.Duration) (driver.Grant, error) {
	now := time.Now()
	r := s.current(c.request.Name, now)
	if r == nil || r.owner != c.request.Owner {
		return driver.Grant{}, distlock.ErrLost
	}
	r.outlast(now.Add(ttl))
	return driver.Grant{Token: r.token, TTL: r.expires.Sub(now)}, nil
}

// outlast makes the lease last until an instant, and never shorter.
func (r *record) outlast(until time.Time) {
	if until.After(r.expires) {
		r.expires = until
	}
}

// release removes every trace of c and reports whether it held the name.
func (s *Store) release(c *claim) bool {
	c.releases++
	r := s.current(c.request.Name, time.Now())
	if r == nil {
		return false
	}
	r.queue = slices.DeleteFunc(r.queue, func(w *waiter) bool { return w.claim == c })
	held := r.owner == c.request.Owner
	if held {
		r.owner = ""
	}
	s.handOff(c.request.Name, r)
	return held
}

func (s *Store) breakLock(name string, token int64) bool {
	r := s.current(name, time.Now())
	if r == nil || r.owner == "" || r.token != token {
		return false
	}
	r.owner = ""
	s.handOff(name, r)
	return true
}

// handOff wakes the next in the queue of a name that may be free, and it alone.
func (s *Store) handOff(name string, r *record) {
	switch {
	case r.owner != "":
	case len(r.queue) == 0:
		delete(s.records, name)
	default:
		select {
		case r.queue[0].claim.wake <- struct{}{}:
		default:
		}
	}
}

func (s *Store) status(name string) distlock.Status {
	now := time.Now()
	st := distlock.Status{Name: name}
	r := s.current(name, now)
	if r == nil {
		return st
	}
	st.Waiters = len(r.queue)
	st.Token = r.token
	if r.owner != "" {
		st.Held, st.Holder = true, r.holder
		st.AcquiredAt, st.Remaining = r.acquired, r.expires.Sub(now)
	}
	return st
}

func (s *Store) list(prefix string) []distlock.Status {
	var sts []distlock.Status
	for name := range s.records {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		if st := s.status(name); st.Held {
			sts = append(sts, st)
		}
	}
	slices.SortFunc(sts, func(a, b distlock.Status) int { return strings.Compare(a.Name, b.Name) })
	return sts
}
