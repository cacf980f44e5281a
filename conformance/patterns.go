package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/patterns"
)

// The checks of elect/*, once/*, maxhold/*, wanted/*, sem/* and rw/* examine what package distlock
// makes of the locks of the driver: it rests on many of its promises at a time. A
// Locker with a pattern of its own is examined with that: one that its store can do
// better, or one that is broken on purpose.

// election is a *patterns.Election, or what stands for it.
type election = interface {
	Leader() (term int64, ok bool)
	Wait() error
}

// leadFunc is what a leader runs.
type leadFunc = func(ctx context.Context, term int64) error

// elect has p take part in an election, until the check is over at the latest. The check
// waits for its end.
func (p *client) elect(ctx context.Context, name string, ttl time.Duration, lead leadFunc) election {
	var e election
	own, ok := p.locker.(interface {
		Elect(ctx context.Context, name string, fn leadFunc, opts ...distlock.Option) election
	})
	if ok {
		e = own.Elect(ctx, name, lead, distlock.TTL(ttl))
	} else {
		e = patterns.Elect(ctx, p.locker, name, lead, distlock.TTL(ttl))
	}
	p.c.Go(func() { _ = e.Wait() }) // the check knows by lead what came of it
	return e
}

func (p *client) oncePer(ctx context.Context, name string, period time.Duration, fn func(context.Context) error) (bool, error) {
	own, ok := p.locker.(interface {
		OncePer(ctx context.Context, name string, period time.Duration, fn func(context.Context) error, opts ...distlock.Option) (bool, error)
	})
	if ok {
		return own.OncePer(ctx, name, period, fn)
	}
	return patterns.OncePer(ctx, p.locker, name, period, fn)
}

func (p *client) maxHold(d time.Duration) distlock.Locker {
	if own, ok := p.locker.(interface {
		MaxHold(d time.Duration) distlock.Locker
	}); ok {
		return own.MaxHold(d)
	}
	return patterns.MaxHold(p.locker, d)
}

// wanted ends the check if the Locker cannot tell.
func (p *client) wanted(lock distlock.Lock, every time.Duration) <-chan struct{} {
	c := p.c
	ask := func(ctx context.Context, lock distlock.Lock, every time.Duration) (<-chan struct{}, error) {
		return patterns.Wanted(ctx, p.locker, lock, every)
	}
	if own, ok := p.locker.(interface {
		Wanted(ctx context.Context, lock distlock.Lock, every time.Duration) (<-chan struct{}, error)
	}); ok {
		ask = own.Wanted
	}
	told, err := ask(c.ctx, lock, every)
	if err != nil {
		c.unheard(err, p.who, lock.Name())
		c.Failf("%s holds %q, and Wanted returned: %v", p.who, lock.Name(), err)
	}
	return told
}

func (p *client) semaphore(n int) distlock.Locker {
	if own, ok := p.locker.(interface {
		Semaphore(n int) distlock.Locker
	}); ok {
		return own.Semaphore(n)
	}
	return patterns.Semaphore(p.locker, n)
}

func (p *client) readWrite(readers int) (read, write distlock.Locker) {
	if own, ok := p.locker.(interface {
		ReadWrite(readers int) (read, write distlock.Locker)
	}); ok {
		return own.ReadWrite(readers)
	}
	return patterns.ReadWrite(p.locker, readers)
}

// take waits for a lock of a pattern, and ends the check if it is not to be had within
// the bound. why says what the caller was entitled to.
func (p *client) take(l distlock.Locker, name string, bound time.Duration, why string, opts ...distlock.Option) distlock.Lock {
	c := p.c
	ctx, cancel := context.WithTimeout(c.ctx, bound+c.soon())
	defer cancel()
	began := c.now()
	lock, err := l.Lock(ctx, name, append([]distlock.Option{distlock.TTL(c.Unit())}, opts...)...)
	if err != nil {
		c.unheard(err, p.who, name)
		c.doubt(began, began+c.Slack()/4) // its context did not wait for the machine
		c.Failf("%s could not have %q within %v, although %s: %v", p.who, name, c.now()-began, why, err)
	}
	return lock
}

// mustNotTake demands that a lock of a pattern is not to be had, as others hold it. It waits a little, as
// somebody might be just about to make room.
func (p *client) mustNotTake(l distlock.Locker, name, why string, held ...distlock.Lock) {
	c := p.c
	ctx, cancel := context.WithTimeout(c.ctx, quiet)
	defer cancel()
	lock, err := l.Lock(ctx, name, distlock.TTL(c.Unit()))
	if err == nil {
		for _, h := range held {
			c.alive(h, why)
		}
		c.Failf("%s got %q with token %d at %s, although %s", p.who, name, lock.Token(), millis(c.now()), why)
	}
}

// giveBack unlocks a lock of a pattern.
func (p *client) giveBack(lock distlock.Lock) {
	c := p.c
	ctx, cancel := c.patiently()
	defer cancel()
	if err := lock.Unlock(ctx); err != nil {
		c.unheard(err, p.who, lock.Name())
		if errors.Is(err, distlock.ErrLost) {
			c.excuse(0, c.Unit(), lock.Name(), err)
		}
		c.Failf("%s held %q, and Unlock returned: %v", p.who, lock.Name(), err)
	}
}

// alive makes the check inconclusive if a renewed lock was lost because the machine has
// stood still, and fails it if there is no such excuse.
func (c *C) alive(lock distlock.Lock, why string) {
	err := lock.Err()
	if err == nil {
		return
	}
	c.excuse(0, c.Unit(), lock.Name(), err)
	c.Failf("%q was lost at %s or before, %s: %v", lock.Name(), millis(c.now()), why, err)
}
