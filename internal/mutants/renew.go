package mutants

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

func renewMutants() []Mutant {
	return []Mutant{
		{
			Name: "ResurrectRenew", Flaw: "makes a renewal create the entry again when it is gone",
			Seen:     "redsync's setNXOnExtend, for a key that has vanished",
			KilledBy: []Kill{{"renew/late-request", "must not revive it"}, {"batch/one-lost", "no renewal has told it so"}},

			design: inside(flaw{renew: renewAnew}),
		},
		{
			Name: "TakeoverRenew", Flaw: "makes a renewal take the entry over from whoever has it now",
			Seen:     "SET with PX and without a condition, as a heartbeat",
			KilledBy: []Kill{{"renew/late-request", "A's late renewal"}},

			design: inside(flaw{renew: renewOver}),
		},
		{
			Name: "BumpOnly", Flaw: "moves the expiry of a name, whoever it belongs to",
			Seen:     "PEXPIRE without comparing the owner",
			KilledBy: []Kill{{"renew/late-request", "did A's late renewal prolong it"}},

			design: inside(flaw{try: tryAndSign, renew: renewAnybodys}),
		},
		{
			Name: "OptimisticRenew", Flaw: "takes a renewal without an answer for one that was confirmed",
			Seen:     "",
			KilledBy: []Kill{{"fault/half-open", "no reply has reached A since"}, {"fault/black-hole", "Extend returned nil"}, {"after/inherits", "it had to be ErrLost before that"}},

			design: outside(flaw{renew: renewHoping}),
		},
		{
			Name: "SilentLoss", Flaw: "never tells a holder that its lock is lost",
			Seen:     "libkv's ZooKeeper store, until PR #156",
			KilledBy: []Kill{{"after/expires", "A's Err is nil"}, {"owner/stale-unlock-free", "its Err must match ErrLost"}},

			design: inside(flaw{wrap: wrapSilent}),
		},
		{
			Name: "CryWolf", Flaw: "declares a lock lost when a request fails",
			Seen:     "listeners that treat SUSPENDED, or any broken connection, as the end of a session",
			KilledBy: []Kill{{"pair/reply-lost", "is lost"}},

			design: outside(flaw{renew: renewInPanic}),
		},
		{
			Name: "ZombieRenewer", Flaw: "goes on renewing after Unlock",
			Seen:     "renewal threads that nobody stops",
			KilledBy: []Kill{{"auto/stops-on-unlock", "before it had anything to renew"}, {"leak/goroutines", "are left"}, {"auto/stops-on-close", "after its client was closed"}},

			design: outside(flaw{try: tryAndHaunt}),
		},
	}
}

func renewAnew(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	g, err := c.inner.Renew(ctx, ttl)
	if !errors.Is(err, distlock.ErrLost) {
		return g, err
	}
	once := c.as(func(r *driver.Request) { r.NoWait = true })
	if _, err := once.Try(ctx); err != nil {
		return driver.Grant{}, distlock.ErrLost // somebody else has it
	}
	return c.inner.Renew(ctx, ttl)
}

func renewOver(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	g, err := c.inner.Renew(ctx, ttl)
	if !errors.Is(err, distlock.ErrLost) {
		return g, err
	}
	if err := remove(ctx, c.driver.mem, c.asked.Name); err != nil {
		return driver.Grant{}, distlock.ErrLost // there is nothing to take over
	}
	return renewAnew(ctx, c, ttl)
}

// tryUntil notes how long the claim may believe in its grant.
func tryUntil(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err == nil {
		c.until = time.Now().Add(g.TTL)
	}
	return g, err
}

// renewByOwnCount does not look at the expiry that it replaces. A copy that arrives late knows of no renewal since.
func renewByOwnCount(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	left := max(ttl, time.Until(c.until))
	g, err := c.inner.Renew(ctx, ttl)
	if err != nil {
		return g, err
	}
	c.until = time.Now().Add(left)
	return driver.Grant{TTL: left}, c.reset(ctx, left)
}

// tryAndSign notes the owner of the grant.
func tryAndSign(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err == nil {
		c.driver.with(c.asked.Name, func(e *entry) { e.owner = c.asked.Owner })
	}
	return g, err
}

func renewAnybodys(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	var owner string
	c.driver.with(c.asked.Name, func(e *entry) { owner = e.owner })
	return c.as(func(r *driver.Request) { r.Owner = owner }).Renew(ctx, ttl)
}

// requestTimeout is what a client library waits for a reply where its caller has
// more time.
const requestTimeout = time.Second

func renewHoping(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	g, err := c.inner.Renew(ctx, ttl)
	if err == nil || errors.Is(err, distlock.ErrLost) {
		return g, err
	}
	return driver.Grant{TTL: ttl}, nil
}

func renewInPanic(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	g, err := c.inner.Renew(ctx, ttl)
	if err != nil {
		return driver.Grant{}, distlock.ErrLost
	}
	return g, nil
}

// tryAndHaunt starts a renewal loop of its own with every grant. It ends when the
// check does: a bubble must not be left with a goroutine in it.
func tryAndHaunt(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err != nil || c.driver.c == nil {
		return g, err
	}
	exorcise := make(chan struct{})
	c.driver.c.Cleanup(func() { close(exorcise) })
	zombie := single{c.driver.inner.Claim(c.asked), c.driver.inner}
	go func() {
		for {
			select {
			case <-exorcise:
				return
			case <-time.After(c.asked.TTL / 3):
			}
			ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
			_, _ = zombie.Renew(ctx, c.asked.TTL)
			cancel()
		}
	}()
	return g, nil
}

// silent is a lock that knows of no loss.
type silent struct {
	*driver.Handle
	once sync.Once
	done chan struct{}
}

func wrapSilent(h *driver.Handle, _ *claim) distlock.Lock {
	return &silent{Handle: h, done: make(chan struct{})}
}

// Err implements distlock.Lock.
func (l *silent) Err() error {
	if err := l.Handle.Err(); errors.Is(err, distlock.ErrUnlocked) {
		return err
	}
	return nil
}

// Done implements distlock.Lock.
func (l *silent) Done() <-chan struct{} {
	if l.Err() != nil {
		l.once.Do(func() { close(l.done) })
	}
	return l.done
}

// Unlock implements distlock.Lock.
func (l *silent) Unlock(ctx context.Context) error {
	err := l.Handle.Unlock(ctx)
	l.once.Do(func() { close(l.done) })
	return err
}
