package distlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Lock implements Locker.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (Lock, error) {
	// Counted, so that Close, which ends this call, closes the driver only after
	// it has begun to undo what it was about to get.
	c.tasks.begin()
	defer c.tasks.finished()
	a, err := c.admit(ctx, name, opts)
	if err != nil {
		return nil, opError("lock", name, err)
	}
	a.place = c.queues.enter(name)
	defer c.queues.leave(a.place)
	if err := a.place.await(ctx, c.life.Done()); err != nil {
		return nil, opError("lock", name, withHeld(err, c.queues.held(a.place)))
	}
	return a.finish("lock", a.acquire())
}

// TryLock implements Locker.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (Lock, error) {
	c.tasks.begin()
	defer c.tasks.finished()
	a, err := c.admit(ctx, name, opts)
	if err != nil {
		return nil, opError("trylock", name, err)
	}
	if c.queues.queued(name) {
		a.contended()
		return nil, opError("trylock", name, ErrHeld)
	}
	a.request.NoWait = true
	a.bid = &bid{Claim: c.driver.Claim(a.request)}
	err = a.try(nil)
	if errors.Is(err, ErrHeld) {
		a.contended()
	}
	return a.finish("trylock", err)
}

// attempt is one call of Lock or TryLock on its way to a lock.
type attempt struct {
	client  *Client
	ctx     context.Context // the caller's
	request Request
	place   *place // nil in a TryLock
	bid     *bid
	start   time.Time // of the call, for the observer
	tries   int
	pace    pacer
	lock    Lock // once it is won
}

// admit checks everything that can be checked before the backend is asked.
func (c *Client) admit(ctx context.Context, name string, opts []Option) (*attempt, error) {
	o := CallOptions{TTL: c.opts.TTL, Holder: c.opts.Holder}
	for _, opt := range opts {
		opt(&o)
	}
	err := cmp.Or(ctx.Err(), c.lifeErr(), checkName(name), checkTTL(o.TTL, c.caps), checkHolder(o.Holder))
	if err != nil {
		return nil, err
	}
	return &attempt{client: c, ctx: ctx, start: time.Now(), request: Request{
		Name:      name,
		Owner:     newOwner(),
		TTL:       o.TTL,
		Holder:    o.Holder,
		NoRenewal: o.NoRenewal,
	}}, nil
}

// over returns why the attempt must not go on: its context has ended, or the
// Client is being closed. It returns nil if it may.
func (a *attempt) over() error { return cmp.Or(a.client.lifeErr(), a.ctx.Err()) }

// newOwner returns 128 random bits. The owner belongs to one acquisition alone:
// an owner per process, host or session is how other libraries free or renew
// what a later acquisition of the same process holds.
func newOwner() string {
	var b [16]byte
	var text [2 * len(b)]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	hex.Encode(text[:], b[:])
	return string(text[:])
}

// acquire tries, waits and tries again until the lock is won or the call is over.
func (a *attempt) acquire() error {
	c := a.client
	a.bid = &bid{Claim: c.driver.Claim(a.request)}
	err := a.try(nil)
	for errors.Is(err, ErrHeld) {
		if a.tries == 1 {
			c.queues.setHeld(a.place)
			a.contended()
		}
		a.pace.next(c.caps, a.request.TTL, heldFor(err))
		if err = a.pace.rest(a.ctx, c.life.Done()); err == nil {
			err = a.try(&a.pace)
		}
		if err != nil && a.over() != nil {
			return withHeld(a.over(), true)
		}
	}
	return err
}

// try asks the driver once, after it has waited until that may be of use, unless
// pace is nil. Both are one task, since on the way of a lock from hand to hand each
// change of goroutines counts.
//
// A grant becomes a handle only if it is of use: one whose reply took longer than
// the lease, or came after the caller had left, or after Close, is an error here and
// is undone by finish.
func (a *attempt) try(pace *pacer) error {
	c := a.client
	if err := a.bid.take(a.ctx); err != nil {
		return a.over() // the last call is through with the driver, but not yet with its turn
	}
	limit := min(a.request.TTL, maxCall)
	patience := limit
	if pace != nil {
		patience += pace.bound
	}
	a.tries++ // even if its answer is never heard
	grant, err := guarded(&c.tasks, c.caps.Backend, a.ctx, c.life.Done(), patience, func(ctx *call) (Grant, error) {
		if pace != nil {
			if err := cmp.Or(a.wait(ctx, pace), ctx.Err()); err != nil || a.over() != nil {
				return Grant{}, err // nobody waits any more for a Try after a Wait that hung
			}
			ctx = ctx.then(limit)
		}
		sent := time.Now()
		grant, err := a.bid.Try(ctx)
		if grant.Sent.IsZero() {
			grant.Sent = sent
		}
		return grant, ctx.hides(err, c.caps.Backend)
	}, a.bid.pass)
	var late *noAnswerError
	switch {
	case a.over() != nil:
		return a.over()
	case errors.As(err, &late):
		return &noAnswerError{c.caps.Backend, limit}
	case err != nil:
		return err
	case grant.Token <= 0 || grant.TTL <= 0:
		return fmt.Errorf("driver %s broke its contract: token %d, TTL %v", c.caps.Backend, grant.Token, grant.TTL)
	}
	return a.win(grant)
}

// win makes a grant the lock.
func (a *attempt) win(grant Grant) error {
	h := newHandle(a, grant)
	if !time.Now().Before(h.deadline) {
		return fmt.Errorf("granted too late: the lease of %v ended before the answer of %s came", grant.TTL, a.client.caps.Backend)
	}
	a.lock = h
	if w, ok := a.client.driver.(LockWrapper); ok {
		a.lock = w.WrapLock(h, a.bid.Claim) // before anybody can release it
	}
	if !a.client.adopt(h) {
		return ErrClosed
	}
	return nil
}

// wait blocks until the driver says that trying again may help, or for as long as
// pace allows. Wait is the one call whose context ends with the caller's: it holds
// nothing that would have to be undone but the queue place.
func (a *attempt) wait(ctx context.Context, pace *pacer) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, pace.bound)
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)()
	defer context.AfterFunc(a.client.life, cancel)()
	err := a.bid.Wait(ctx)
	pace.woke(time.Since(began))
	if ctx.Err() != nil {
		return nil // the bound is over, or the caller has left, which is told apart by over
	}
	return err
}

// finish turns the outcome into what the caller gets, and has everything that
// this attempt may have left in the store removed if it failed.
func (a *attempt) finish(op string, err error) (Lock, error) {
	c := a.client
	if err == nil {
		if f := c.opts.Observer.Acquired; f != nil {
			f(Acquired{Name: a.request.Name, Token: a.lock.Token(), Wait: time.Since(a.start), Tries: a.tries})
		}
		return a.lock, nil
	}
	// A TryLock that was told "held" has left nothing, by the driver contract.
	if a.tries > 0 && !(a.request.NoWait && errors.Is(err, ErrHeld)) {
		c.undo(a.ctx, a.bid, a.request)
	}
	return nil, opError(op, a.request.Name, err)
}

func (a *attempt) contended() {
	if f := a.client.opts.Observer.Contended; f != nil {
		f(Contended{Name: a.request.Name})
	}
}
