package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/distlock-go/distlock"
)

// tellPatience is how long a call at the head of the queue waits for the observer or the logger. It goes on without them then.
const tellPatience = 30 * time.Millisecond

// Lock implements Locker.
func (c *Client) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return c.lock(ctx, "lock", name, opts, (*attempt).acquire)
}

// TryLock implements Locker.
func (c *Client) TryLock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return c.lock(ctx, "trylock", name, opts, (*attempt).once)
}

// lock checks what can be checked before the backend is asked, has acquire do the rest, and sees to what
// is left, also after a panic.
func (c *Client) lock(ctx context.Context, op, name string, opts []distlock.Option, acquire func(*attempt) error) (distlock.Lock, error) {
	mustHaveContext(ctx, op)
	// Counted, because Close ends this call, and may close the driver only after the
	// clean-up behind it has begun.
	c.tasks.begin()
	defer c.tasks.finished()
	a, err := c.admit(ctx, name, opts)
	if err != nil {
		return nil, opError(op, name, withCause(ctx, err))
	}
	defer a.recovered()
	return a.finish(op, acquire(a))
}

// attempt is one call to Lock or TryLock on its way to a lock.
type attempt struct {
	client  *Client
	ctx     context.Context // the caller's
	request Request
	record  *record
	first   bool      // in the queue of the name
	claim   Claim     // nil before it is made
	start   time.Time // of the call, for the observer
	backoff backoff

	tries     int
	lookedAt  time.Time     // when the last look began
	sent      time.Time     // when its last request was
	wasHeld   bool          // the store has said so
	warned    bool          // in the log, of the caller's own lock
	took      time.Duration // that the last answer took
	woken     bool          // the last Wait has ended by a wake-up
	giveUpAt  time.Time     // the call outlives an outage until then; zero if there is none
	retry     Retry         // in an outage
	mayBeLeft bool          // the claim may have left something in the store
	health    health        // after the last request
	answered  bool          // the store has answered the last request
	before    error         // the answer before the last request, which had none

	handle  *Handle       // once it is won
	lock    distlock.Lock // handle, as the driver has wrapped it
	settled bool          // what counts for others has ended
	ended   bool          // the caller gets the outcome
}

// admit checks everything that can be checked before the backend is asked.
func (c *Client) admit(ctx context.Context, name string, opts []distlock.Option) (*attempt, error) {
	o := distlock.CallOptions{TTL: c.opts.TTL, Holder: c.opts.Holder}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	err := cmp.Or(ctx.Err(), c.lifeErr(), checkName(name), checkHolder(o.Holder))
	if err != nil {
		return nil, err
	}
	ttl, err := c.lease(o.TTL, o.NoRenewal)
	if err != nil {
		return nil, err
	}
	return &attempt{client: c, ctx: ctx, start: time.Now(), record: c.names.join(name), request: Request{
		Name:      name,
		Owner:     newOwner(),
		TTL:       ttl,
		Holder:    o.Holder,
		NoRenewal: o.NoRenewal,
	}}, nil
}

// over returns why the attempt must not go on: its context has ended, or the
// Client is being closed. It returns nil if it may.
func (a *attempt) over() error { return cmp.Or(a.client.lifeErr(), endOf(a.ctx)) }

// limit bounds one request. What takes longer than the lease is no grant any more. A waiter
// outlives an outage for its TTL, and a request that hangs must leave time for others: so it has
// a third of that, unless the store is known to need more.
func (a *attempt) limit() time.Duration {
	ttl := a.request.TTL
	if a.wasHeld {
		ttl = min(ttl, max(ttl/3, 2*a.took, callGrace))
	}
	return min(ttl, maxCall)
}

// once tries as TryLock does.
func (a *attempt) once() error {
	a.request.NoWait = true
	err := a.client.names.refusal(a.record)
	if err == nil {
		err = a.try()
		if errors.Is(err, distlock.ErrHeld) {
			a.client.names.noteTold(a.record, err, a.sent)
		}
	}
	if over := a.over(); over != nil && err != nil {
		return withReason(over, a.reason(over, err))
	}
	return err
}

// acquire queues, tries, waits and tries again until the lock is won or the call is over. It alone
// decides how long a call outlives an outage of the store.
func (a *attempt) acquire() error {
	c := a.client
	if err := c.names.enqueue(a.record, a.ctx, c.life.Done()); err != nil {
		return a.stopped(err, nil)
	}
	a.first = true
	if err := c.names.silent(a.record, a.start, a.limit()); err != nil {
		if over := a.over(); over != nil {
			return a.stopped(over, err)
		}
		return err
	}
	err := a.try()
	waitFailed := false // the last Wait has failed
	for err != nil {
		over := a.over()
		switch {
		case errors.Is(err, distlock.ErrHeld):
			if !a.wasHeld && c.opts.Observer.Contended != nil {
				a.tell(a.contended)
			}
			// The wait ends if another goroutine has the lock. It never ends if this one has it.
			if !a.warned && time.Since(a.start) >= a.request.TTL && c.holds(a.request.Name) {
				a.warned = true
				a.tell(func() {
					c.log(a.ctx, slog.LevelInfo, "waiting for longer than the TTL for "+errOwn.Error(), a.request.Name, 0, nil)
				})
			}
			a.wasHeld, a.giveUpAt = true, time.Now().Add(min(a.request.TTL, maxOutlast))
			if !waitFailed { // else the name is asked for again and again
				a.retry = Retry{}
			}
			c.names.noteHeld(a.record, err)
			a.backoff.next(c.caps, a.request.TTL, heldOf(err))
			err = a.wait()
			waitFailed = err != nil
		case over != nil:
		case a.outlasts(err):
			err = nil
		default:
			return err
		}
		if over = cmp.Or(over, a.over()); over != nil {
			return a.stopped(over, err)
		}
		if err == nil {
			err = a.try()
		}
	}
	switch {
	case a.woken:
		c.woken.Add(1)
	case a.wasHeld:
		c.polled.Add(1)
	}
	return nil
}

// try asks the driver, and asks again as long as the store says that this may help at once. The first
// makes the claim.
//
// A grant becomes a handle only if it can be used. If its reply took longer than the
// lease, or came after the caller had left, or after Close, it is an error here, and
// settle has it undone.
func (a *attempt) try() error {
	a.lookedAt = time.Now()
	c, limit := a.client, a.limit()
	if a.claim == nil {
		var err error
		if limit, err = a.makeClaim(limit); err != nil {
			return err
		}
	}
	ctx := c.call(a.ctx, c.calls, limit)
	defer ctx.end()
	var grant Grant
	err := Insist(ctx, func() (err error) {
		grant, err = a.ask(ctx)
		return err
	})
	a.before = answerBefore(err)
	over := a.over()
	switch {
	case err != nil:
		return c.asHeld(ctx.explain(err))
	case over != nil:
		return over
	case grant.Token <= 0 || grant.TTL <= 0:
		return &Fault{Answered, fmt.Errorf("driver %s broke its contract: token %d, TTL %v", c.caps.Backend, grant.Token, grant.TTL)}
	}
	return a.win(grant)
}

// ask makes one call to Try, and notes what it may have left.
func (a *attempt) ask(ctx context.Context) (Grant, error) {
	a.sent = time.Now()
	a.tries++
	a.client.tries.Add(1)
	var grant Grant
	err := a.client.guard(ctx, a.request.Name, func() (err error) { grant, err = a.claim.Try(ctx); return err })
	held, fate, took := errors.Is(err, distlock.ErrHeld), FateOf(err), time.Since(a.sent)
	a.mayBeLeft = a.mayBeLeft || err == nil || fate == Unknown || held && !a.request.NoWait
	a.answered = fate != Unknown && fate != NotSent
	a.health = healthOf(err, took, a.over() != nil)
	if err == nil || held {
		a.took = took
	}
	return grant, err
}

// win makes a grant, the answer to the last request, the lock.
func (a *attempt) win(grant Grant) error {
	var err error
	if grant.Token, err = a.client.shownToken(grant.Token); err != nil {
		return &Fault{Answered, err}
	}
	h := newHandle(a, grant, a.sent)
	if a.client.now() >= h.deadline {
		return fmt.Errorf("granted too late: the lease of %v ended before the answer of %s came", grant.TTL, a.client.caps.Backend)
	}
	a.handle, a.lock = h, h
	if w, ok := a.client.driver.(LockWrapper); ok {
		// Before anybody can release it.
		if err := a.client.guard(a.ctx, h.name, func() error { a.lock = w.WrapLock(h, a.claim); return nil }); err != nil {
			h.end() // WrapLock may have given it away
			return &Fault{Answered, err}
		}
	}
	if !a.client.adopt(h) {
		h.end()
		return distlock.ErrClosed
	}
	return nil
}

// wait blocks until trying again may help: the driver says so, or a.backoff does.
//
// Its context ends with the caller's, without a grace: a Wait has no outcome that would
// have to be known.
func (a *attempt) wait() error {
	c, bound := a.client, a.backoff.bound
	began := time.Now()
	bounded, cancel := context.WithTimeout(a.ctx, bound)
	ctx := &call{Context: bounded, caller: a.ctx, until: c.life, cancel: cancel, limit: bound, deadline: began.Add(bound), backend: c.caps.Backend}
	defer ctx.end()
	defer context.AfterFunc(c.life, cancel)()
	err := c.guard(ctx, a.request.Name, func() error { return a.claim.Wait(ctx) })
	if errors.Is(err, distlock.ErrHeld) {
		err = nil // a hint like others: Try decides
	}
	if a.woken = err == nil && ctx.Err() == nil; a.woken {
		a.backoff.pause(ctx, time.Since(began))
	}
	if err != nil && ctx.Err() == nil { // else the bound is over, or the caller has left
		return cmp.Or(a.over(), ctx.explain(err))
	}
	return a.over()
}

// finish turns the outcome into what the caller gets.
func (a *attempt) finish(op string, err error) (distlock.Lock, error) {
	a.settle(err)
	if err != nil {
		err = a.callError(op, err)
	} else {
		a.client.log(a.ctx, slog.LevelDebug, "lock acquired", a.request.Name, a.lock.Token(), nil)
	}
	o, wait := a.client.opts.Observer, time.Since(a.start)
	switch {
	case err == nil && o.Acquired != nil:
		o.Acquired(distlock.Acquired{Ctx: a.ctx, Name: a.request.Name, Token: a.lock.Token(), Wait: wait, Tries: a.tries})
	case a.request.NoWait && errors.Is(err, distlock.ErrHeld):
		a.contended()
	case err != nil && o.Failed != nil:
		o.Failed(distlock.Failed{Ctx: a.ctx, Op: op, Name: a.request.Name, Wait: wait, Err: err})
	}
	a.ended = true
	if err != nil {
		return nil, err
	}
	return a.lock, nil
}

// settle lets others go on, and has everything removed that this attempt may have
// left in the store if it failed. The observer, maybe a slow one, is told after it.
func (a *attempt) settle(err error) {
	c := a.client
	a.settled = true
	if !a.request.NoWait { // it has queued
		c.names.dequeue(a.record, a.first, err == nil)
	}
	switch {
	case a.claim == nil:
		c.names.leave(a.record)
	case err == nil || !a.mayBeLeft:
		c.names.end(a.record, a.answered)
	default:
		a.undo()
	}
}

// makeClaim makes the claim of the attempt, once its name has few enough of them pending. It returns what is left of limit for
// its first request: the wait for others is a part of that, where the store was silent.
func (a *attempt) makeClaim(limit time.Duration) (left time.Duration, err error) {
	c := a.client
	var claim Claim
	if err := c.guard(a.ctx, a.request.Name, func() error { claim = c.driver.Claim(a.request); return nil }); err != nil {
		return 0, err
	}
	left = c.names.begin(a.record, a.ctx, c.life.Done(), limit)
	if left <= 0 {
		if err := a.over(); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("%w to %d earlier requests for the name", &NoAnswer{From: c.caps.Backend, After: limit}, maxPending)
	}
	if a.request.NoWait {
		if err := c.names.toldSince(a.record, a.start); err != nil {
			<-a.record.slots
			return 0, err
		}
	}
	a.claim = claim
	return left, nil
}

// recovered cleans up after a panic in a function of the caller's, such as an observer. A
// server may survive one: a lock that no caller has must not be renewed for ever.
func (a *attempt) recovered() {
	if a.ended {
		return
	}
	if a.handle != nil {
		a.handle.end()
	}
	if !a.settled {
		a.settle(errPanicked)
	} else if a.handle != nil {
		a.handle.releaseLater(a.ctx)
	}
}

// errPanicked is never returned: it says that an attempt has ended without a result.
var errPanicked = errors.New("a function of the caller's has panicked")

// tell calls what is the user's while others wait in the queue behind this call: it waits for tellPatience.
func (a *attempt) tell(f func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), tellPatience)
	defer cancel()
	_, _ = Detach(ctx, func() (none struct{}, _ error) { f(); return none, nil })
}

func (a *attempt) contended() {
	if f := a.client.opts.Observer.Contended; f != nil {
		f(distlock.Contended{Ctx: a.ctx, Name: a.request.Name})
	}
}
