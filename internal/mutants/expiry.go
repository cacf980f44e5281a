package mutants

import (
	"context"
	"errors"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

func expiryMutants() []Mutant {
	return []Mutant{
		{
			Name: "NoTTL", Flaw: "takes the name with one request and sets its expiry with a second",
			Seen:     "SETNX then EXPIRE, in countless libraries before SET NX PX",
			KilledBy: []Kill{{"expiry/ttl-atomic", "an entry without expiry"}},
			design:   outside(flaw{try: tryThenExpire}),
		},
		{
			Name: "EarlyExpiry", Flaw: "rounds the TTL down to whole seconds",
			Seen:     "columns and options in seconds, filled by integer division",
			KilledBy: []Kill{{"expiry/not-early", "before the lease of A could end"}, {"expiry/granted-honest", "the store kept it for less than was asked for"}},

			design: inside(flaw{
				caps:    func(c *driver.Capabilities) { c.MinTTL = time.Second },
				request: func(_ *env, r *driver.Request) { r.TTL = r.TTL.Truncate(time.Second) },
				try:     asAsked,
			}),
		},
		{
			Name: "NeverExpires", Flaw: "ignores the TTL",
			Seen:     "lock rows and files that only their owner removes",
			KilledBy: []Kill{{"after/inherits", "the lease of its dead holder was over"}, {"after/expires", "it had to be free by"}, {"time/untouched", "was the first who asked"}},

			design: inside(flaw{
				request: func(_ *env, r *driver.Request) { r.TTL = distlock.MaxTTL },
				try:     asAsked,
				renew:   renewAsAsked,
			}),
		},
		{
			Name: "StickyTTL", Flaw: "lets a grant end when the one before it would have ended",
			Seen:     "an upsert that leaves the column of the expiry out",
			KilledBy: []Kill{{"handover/lease", "it had to be free by"}, {"after/frees", "although B held it until"}},

			design: inside(flaw{try: trySticky}),
		},
	}
}

// clockMutants count from the wrong instant, or by the wrong clock.
func clockMutants() []Mutant {
	return []Mutant{
		{
			Name: "DeadlineFromReply", Flaw: "counts the holder's deadline from the reply",
			Seen:     "the obvious way to write it; redsync subtracts the time that has passed",
			KilledBy: []Kill{{"expiry/granted-honest", "not from the reply"}},

			design: wrapper{lock: lockFromReply, try: lockFromReply}.in(),
		},
		{
			Name: "StatementTime", Flaw: "counts the TTL from when it began to wait for the name",
			Seen:     "NOW() in a statement that waits for a row lock, measured on MySQL",
			KilledBy: []Kill{{"handover/lease", "two holders at once"}, {"after/inherits", "before the lease of A could end"}},

			design: inside(flaw{try: tryFromStatement}),
		},
		{
			Name: "ClientClock", Flaw: "judges an expiry that the server has set by the clock of whoever asks",
			Seen:     "ShedLock's JDBC provider without usingDbTime",
			KilledBy: []Kill{{"expiry/server-clock-judges", "was granted"}},
			design:   inside(flaw{try: tryByOwnClock}),
		},
		{
			Name: "HeldByOwnClock", Flaw: "says with a refusal what is left of an expiry that the server has set, by the clock of the client that asks",
			KilledBy: []Kill{{"expiry/server-clock-judges", "told that the name stays taken for"}},
			design:   inside(flaw{try: tryToldByOwnClock}),
		},
		{
			Name: "RestByOwnClock", Flaw: "shows what is left of an expiry that the server has set by the clock of the client that looks",
			KilledBy: []Kill{{"expiry/server-clock-judges", "remain"}},
			design: inside(flaw{status: func(e *env, st *distlock.Status) {
				if st.Held {
					st.Remaining = max(st.Remaining+e.offset(), 0)
				}
			}}),
		},
		{
			Name: "SweepsByOwnClock", Flaw: "sweeps what the server has dated by the clock of the client that sweeps",
			KilledBy: []Kill{{"expiry/server-clock-judges", "C has swept the store"}},
			design:   sweeping(ways{since: released, byClient: true}),
		},
	}
}

// offset is how far the clock of the server is ahead of that of the clients.
func (w *world) offset() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ahead
}

// tryToldByOwnClock asks for the name, and counts the rest of another's lease by the client's clock.
func tryToldByOwnClock(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if held, ok := errors.AsType[*distlock.HeldError](err); ok {
		told := *held
		told.Remaining = max(told.Remaining+c.driver.offset(), 1)
		err = &told
	}
	return g, err
}

// tryThenExpire takes the name for ever, and for its TTL with a second request.
func tryThenExpire(ctx context.Context, c *claim) (g driver.Grant, err error) {
	err = c.driver.send(ctx, func(ctx context.Context) error {
		_, err := c.as(func(r *driver.Request) { r.TTL, r.NoWait = distlock.MaxTTL, true }).Try(ctx)
		return err
	})
	if err != nil && !errors.Is(err, distlock.ErrHeld) {
		return driver.Grant{}, err
	}
	// memlock grants its own entry again; or, if the name is held, it queues the claim.
	if g, err = c.inner.Try(ctx); err == nil {
		c.driver.memory.SetRemaining(c.asked.Name, c.asked.TTL)
	}
	return g, err
}

// asAsked reports the TTL that was asked for, whatever the store has got.
func asAsked(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	g.TTL = c.asked.TTL
	return g, err
}

func renewAsAsked(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	g, err := c.inner.Renew(ctx, ttl)
	g.TTL = ttl
	return g, err
}

func trySticky(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err != nil {
		return g, err
	}
	var rest time.Duration
	c.driver.with(c.asked.Name, func(e *entry) {
		if rest = time.Until(e.expires); rest <= 0 {
			rest = c.asked.TTL
			e.expires = time.Now().Add(rest)
		}
	})
	return g, c.reset(ctx, rest)
}

// fromReply is a lock with a deadline counted from the reply.
type fromReply struct {
	distlock.Lock
	took time.Duration // from the call to the reply
}

// Deadline implements distlock.Lock.
func (l *fromReply) Deadline() time.Time { return l.Lock.Deadline().Add(l.took) }

// lockFromReply is no flaw of a driver: the engine believes no grant beyond
// what was asked for, from before the call.
func lockFromReply(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
	called := time.Now()
	l, err := call(ctx, name, opts...)
	if err != nil {
		return l, err
	}
	return &fromReply{l, time.Since(called)}, nil
}

func tryFromStatement(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err != nil {
		return g, err
	}
	return g, c.reset(ctx, c.asked.TTL-time.Since(c.began))
}

// tryByOwnClock breaks what has expired by the client's clock.
func tryByOwnClock(ctx context.Context, c *claim) (driver.Grant, error) {
	st, err := c.driver.mem.Inspect(ctx, c.asked.Name)
	if err != nil {
		return driver.Grant{}, err
	}
	if st.Held && c.driver.offset()+st.Remaining <= 0 {
		if err := remove(ctx, c.driver.mem, c.asked.Name); err != nil {
			return driver.Grant{}, err
		}
	}
	return c.inner.Try(ctx)
}
