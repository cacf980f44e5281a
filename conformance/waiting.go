package conformance

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

// quiet is how long a check waits for something that it cannot see, such as a waiter
// that has reached the store. On a slower machine the check looks at another moment
// than it meant to, and that can only make it pass.
const quiet = 150 * time.Millisecond

// pending is a call to Lock under way.
type pending struct {
	c      *C
	p      *client
	name   string
	began  time.Duration
	cancel context.CancelFunc
	done   chan struct{} // closed when a is set
	a      answer
}

// errOwnReason is why the contexts of some calls end. It is the caller's alone: the error of
// the call has to match that of the context.
var errOwnReason = errors.New("the caller has a reason of its own")

// begin calls Lock in a goroutine of its own.
func (p *client) begin(name string, opts ...distlock.Option) *pending {
	ctx, cancel := context.WithCancelCause(p.c.ctx)
	leave := func() { cancel(errOwnReason) }
	w := &pending{c: p.c, p: p, name: name, began: p.c.now(), cancel: leave, done: make(chan struct{})}
	p.c.Go(func() {
		defer leave()
		defer close(w.done)
		w.a = p.acquire(ctx, oracle.OpLock, name, opts...)
	})
	return w
}

// within reports whether the call has returned before so long from now.
func (w *pending) within(d time.Duration) bool { return w.c.within(w.done, d) }

// firstDone returns the first of some calls that has returned, as soon as one has, and 0 if none does before so long
// from now. It does not look again and again: a lease may last for months, in virtual time.
func (c *C) firstDone(calls []*pending, d time.Duration) int {
	returned, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	var once sync.Once
	for _, w := range calls {
		go func() {
			select {
			case <-w.done:
				once.Do(func() { close(returned) })
			case <-over:
			}
		}()
	}
	c.within(returned, d)
	return max(0, slices.IndexFunc(calls, func(w *pending) bool { return isDone(w.done) }))
}

// lease returns the lock that the call got within the bound, and ends the check if
// it did not. why says what the waiter was entitled to.
func (w *pending) lease(bound time.Duration, why string) *lease {
	return w.awaited(w.c.check.Clause, w.c.now(), bound, why)
}

// awaited is lease with the clause that is broken if the call has not returned, and with the instant from which the bound counts.
func (w *pending) awaited(clause string, from, bound time.Duration, why string) *lease {
	if !w.within(from + bound - w.c.now()) {
		w.c.breach(clause, "%s is still waiting for %q at %s; it had %v, counted from %s; it was entitled to the name because %s",
			w.p.who, w.name, millis(w.c.now()), bound, millis(from), why)
	}
	if w.a.err != nil {
		w.c.unheard(w.a.err, w.p.who, w.name)
		w.c.Failf("%s waited for %q, and when %s, Lock returned: %v", w.p.who, w.name, why, w.a.err)
	}
	return w.a.lease
}

// woken is lease after an unlock, for checks that are about something else than wake-ups:
// a waiter that does not hear of the unlock is a breach of W1, whatever they look for.
func (w *pending) woken(bound time.Duration, why string) *lease {
	return w.awaited("W1", w.c.now(), bound, why)
}

// within reports whether ch is closed before so long from now, and what the machine is
// late meanwhile. It ends the goroutine if the check is over before: a driver that
// confirms a TTL of years must not have its check wait for them.
func (c *C) within(ch <-chan struct{}, d time.Duration) bool {
	came := c.awaits(ch, c.ctx.Done(), d)
	if !came && d > 0 && c.ctx.Err() != nil {
		runtime.Goexit()
	}
	return came
}

// comes reports whether ch is closed before so long from now. It is for what need not come: that the machine was late excuses
// nothing, and the wait is no longer for it. It ends the goroutine if the check is over before.
func (c *C) comes(ch <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ch:
	case <-timer.C:
	case <-c.ctx.Done():
		runtime.Goexit()
	}
	return isDone(ch)
}

// awaitSilence returns how many requests there were when no more come for a moment, or soon enough. A client that has just begun
// to wait may still make the connection on which it will be told.
func (c *C) awaitSilence(requests func() int) (n int) {
	c.eventually(patience, func() bool {
		last := n
		c.sleep(quiet)
		n = requests()
		return n == last
	})
	return n
}

// awaitQueued returns when n clients wait for name in the store, or it has been
// likely for long enough. It reports whether they were seen there.
func (c *C) awaitQueued(name string, n int) bool {
	if i := c.inspector(); i != nil && !c.queueless.Load() {
		queues, seen := true, 0
		if c.eventually(patience, func() bool {
			got, err := i.Waiters(c.ctx, name)
			queues, seen = err != nil || got >= 0, max(seen, got)
			return !queues || err == nil && got >= n
		}) && queues {
			return true
		}
		// A store that keeps no queue shows nobody, however long one looks.
		if seen <= 0 && c.harness.Caps().Fair != Yes {
			c.queueless.Store(true)
		}
	}
	c.sleep(quiet)
	return false
}

// pollFor has p try for a name until it gets it, and ends the check if it is not
// to be had within the bound. why says what it was entitled to.
//
// It looks often at first, for what is free in a moment, and again towards the end
// of the bound, where leases are expected to run out; in between it is content with
// less, for the sake of the server and of the model that has to explain every look.
func (c *C) pollFor(p *client, name string, bound time.Duration, why string, opts ...distlock.Option) *lease {
	began := c.now()
	end := began + bound
	var unanswered answer // the last one of these: it may have been granted, and is undone in a while
	for pause := c.poll(); ; pause = max(c.poll(), min(pause*3/2, (end-c.now())/50)) {
		late := c.past(began, end) // the last look is made after the bound has passed
		a := p.try(name, opts...)
		if a.err == nil {
			return a.lease
		}
		if !a.busy() {
			unanswered = a
		}
		if late {
			if unanswered.err != nil && c.now() < unanswered.ret+c.timing.CleanupBound+c.soon() {
				c.unheard(unanswered.err, p.who, name)
			}
			c.doubt(began, end)
			c.Failf("%s still cannot have %q at %s, %v after the check began to ask for it, because %s; it had to be free within %v of that: %v",
				p.who, name, millis(c.now()), c.now()-began, why, bound, a.err)
		}
		c.sleep(pause)
	}
}

// long is a TTL long enough to tell a slow machine from a waiter that is not woken:
// that one waits for the expiry, or for the poll at a third of the TTL.
func (c *C) long() time.Duration { return c.fits(max(10*c.Unit(), 12*c.soon())) }

// ending returns a TTL near to d of a lease that the check lets run out. A slow store or machine needs longer ones, or they are
// over when the answer comes.
func (c *C) ending(d time.Duration) time.Duration { return c.fits(max(d, c.cal.Short)) }

// short is that of checks that let many leases run out.
func (c *C) short() time.Duration { return c.ending(0) }

// term is the TTL of a lease that is not renewed, and of which a quarter has to be enough for a call.
func (c *C) term() time.Duration { return c.fits(max(c.Unit(), 4*c.cal.Short)) }

// fits returns a TTL near to d that the driver grants as it is asked for.
func (c *C) fits(d time.Duration) time.Duration {
	d = c.rounded(max(d, c.timing.MinTTL))
	if limit := c.timing.MaxTTL; limit > 0 && d > limit {
		return limit
	}
	return d
}

// extends returns a TTL near to d for Extend of a lock taken with another, so that the
// lock gets all of it.
func (c *C) extends(taken, d time.Duration) time.Duration {
	if most := c.timing.MaxExtend; most > 0 {
		d = min(d, time.Duration(most*float64(taken)))
	}
	return c.fits(d)
}

// rounded rounds a TTL up to what the driver grants anyway.
func (c *C) rounded(ttl time.Duration) time.Duration {
	if g := c.timing.TTLGranularity; g > 0 {
		ttl = (ttl + g - 1) / g * g
	}
	return ttl
}

// atMost is the longest lease that a driver may make of a TTL (E2): rounded up by
// no more than its granularity.
func (c *C) atMost(ttl time.Duration) time.Duration {
	return max(ttl, c.timing.MinTTL) + c.timing.TTLGranularity
}

// granted is the longest lease that h may have, counted from its grant.
func (h *lease) granted() time.Duration { return h.p.c.atMost(h.asked) }

// gone is when the store must have let go of h, of a fixed term, at the latest.
func (h *lease) gone() time.Duration {
	return h.ret + h.granted() + h.p.c.timing.ExpiryLag
}

// rounds counts to n, but ends earlier when it has taken too long: on a slow server
// fewer rounds make a check of the same length. At least 20 are made.
func (c *C) rounds(n int) iter.Seq[int] {
	const enough, limit = 20, 6 * time.Second
	return func(yield func(int) bool) {
		began := c.now()
		for i := range n {
			if !c.Virtual() && i >= enough && c.now()-began > limit {
				c.Logf("%d of %d rounds in %v", i, n, c.now()-began)
				return
			}
			if !yield(i) {
				return
			}
		}
	}
}

// together runs f in n goroutines, each with a generator of its own, and returns
// when all have.
func (c *C) together(n int, f func(i int, rng *rand.Rand)) {
	var wg sync.WaitGroup
	for i := range n {
		rng := c.Rand() // here, so that the i-th goroutine gets the i-th stream
		wg.Add(1)
		c.Go(func() {
			defer wg.Done()
			f(i, rng)
		})
	}
	wg.Wait()
	if c.ctx.Err() != nil {
		runtime.Goexit() // one of them has taken the verdict
	}
}

// openPhased is open for checks that look for the right moment by chance. In
// virtual time a call takes no time, and so has no middle to aim at, unless the
// link gives it some.
func (c *C) openPhased(who string) *client {
	if _, ok := can[Proxy](c, capProxy); !ok || !c.Virtual() {
		return c.open(who)
	}
	p := c.openVia(who)
	p.link.Delay(virtualLatency, virtualLatency)
	return p
}

const virtualLatency = 4 * time.Millisecond

// phase is how far apart such a check spreads its moments: some round trips.
func (c *C) phase() time.Duration {
	if c.Virtual() {
		return 4 * virtualLatency
	}
	return max(2*c.cal.Pair, time.Millisecond)
}

// mustLive ends the check if h has been lost although it is renewed, or its term is not over.
func (c *C) mustLive(h *lease, why string) {
	if h.fixed {
		c.mustHold(h, why)
		return
	}
	err := h.Err()
	if err == nil {
		return
	}
	c.noteStall(c.slowestTry(h))
	c.excuse(h.call, min(c.Unit(), h.asked), h.Name(), err)
	c.Failf("%s lost %q at %s or before, %s: %v", h.p.who, h.Name(), millis(c.now()), why, err)
}

// mustExtend extends a live lock.
func (h *lease) mustExtend(ttl time.Duration) (call, ret time.Duration) {
	call, ret, err := h.extend(ttl)
	if err != nil {
		h.p.c.breach("H5", "%s held %q and extended it at %s by %v, but Extend returned: %v", h.p.who, h.Name(), millis(call), ttl, err)
	}
	return call, ret
}

// extend extends a live lock. An error is that the term is refused.
func (h *lease) extend(ttl time.Duration) (call, ret time.Duration, err error) {
	c := h.p.c
	alive, end := h.Err() == nil, h.closing()
	call = c.now()
	ctx, cancel := c.patiently()
	defer cancel()
	err = h.Extend(ctx, ttl)
	ret = c.now()
	switch {
	case err == nil:
		h.longest = max(h.longest, ret+c.atMost(ttl))
		return call, ret, nil
	case errors.Is(err, distlock.ErrInvalid):
		return call, ret, err
	case !alive || ret >= end || ret-call > min(c.Unit()/2, (end-call)/3):
		// A call that took a third of what was left had no answer, or one that came too late for another attempt.
		c.Inconclusivef("%s came too late to extend %q, from %s to %s, its lease ended at %s: %v",
			h.p.who, h.Name(), millis(call), millis(ret), millis(end), err)
	}
	c.unheard(err, h.p.who, h.Name())
	c.breach("H5", "%s held %q until %s and extended it at %s by %v, but Extend returned: %v",
		h.p.who, h.Name(), millis(end), millis(call), ttl, err)
	return
}

// millis prints a time as the stamps of events are printed.
func millis(d time.Duration) string { return oracle.Stamp{At: d}.String() }

// describe says what an error was where nil had to be told from others.
func describe(err error) string {
	if err == nil {
		return "nil"
	}
	return fmt.Sprintf("%q", err.Error())
}

// repeat calls f every millisecond until stop has returned.
func (c *C) repeat(f func()) (stop func()) {
	ctx, cancel := context.WithCancel(c.ctx)
	ended := make(chan struct{})
	c.Go(func() {
		defer close(ended)
		for !c.within(ctx.Done(), time.Millisecond) {
			f()
		}
	})
	return func() { cancel(); <-ended }
}
