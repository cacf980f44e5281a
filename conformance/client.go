package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/conformance/oracle"
)

// patience bounds calls that should take a round trip. It is long enough for a
// machine in trouble, and short of the watchdog.
const patience = 15 * time.Second

// client is one client of a check, known by its letter in everything printed.
type client struct {
	c      *C
	who    string
	locker distlock.Locker
	link   netfault.Link // nil if the client was not opened by openVia
	holds  atomic.Int64  // the locks that it has got and not unlocked

	delayed bool // by its link, all the time
}

// open returns a new client. It is closed when the check is over.
func (c *C) open(who string) *client {
	return c.openWith(who, func(ctx context.Context) (distlock.Locker, netfault.Link, error) {
		began := time.Now()
		l, err := c.harness.Open(ctx, c)
		if err == nil || timedOut(err) {
			c.openings.opened(began)
		}
		return l, nil, err
	})
}

// openVia returns a new client behind a link of its own.
func (c *C) openVia(who string) *client {
	proxy, ok := can[Proxy](c, capProxy)
	if !ok {
		c.lacks(capProxy, "the harness is no Proxy")
	}
	return c.openWith(who, func(ctx context.Context) (distlock.Locker, netfault.Link, error) {
		return proxy.OpenVia(ctx, c)
	})
}

// openIn returns a new client in a namespace that only this check uses.
func (c *C) openIn(who, label string) *client {
	n, ok := can[Namespaces](c, capNamespaces)
	if !ok {
		c.lacks(capNamespaces, "the harness has no Namespaces")
	}
	namespace := strings.ReplaceAll(c.prefix, "-", "") + label
	return c.openWith(who, func(ctx context.Context) (distlock.Locker, netfault.Link, error) {
		l, err := n.OpenIn(ctx, c, namespace)
		return l, nil, err
	})
}

// openWith returns the client that open makes.
func (c *C) openWith(who string, open func(context.Context) (distlock.Locker, netfault.Link, error)) *client {
	var l distlock.Locker
	var link netfault.Link
	var err error
	asked := c.now()
	c.openings.inTurn(c.ctx, func() {
		c.noteStall(c.now() - asked) // others may wait for this client meanwhile
		ctx, cancel := c.patiently()
		defer cancel()
		began := time.Now()
		if l, link, err = open(ctx); c.ctx.Err() == nil { // the check's own end is no answer of the store
			c.outages.note(began, err)
		}
	})
	if !c.Virtual() && timedOut(err) { // which says nothing of what the check is about
		c.Inconclusivef("%s could not be opened in time: %v", who, err)
	}
	if err != nil {
		c.unheard(err, who, "its store")
		c.Failf("%s could not be opened: %v", who, err)
	}
	p := &client{c: c, who: who, locker: l, link: link}
	c.own(p)
	return p
}

// openMortal returns a client that can be cut off, where the harness allows it.
func (c *C) openMortal(who string) *client {
	if c.mortal() {
		return c.openVia(who)
	}
	return c.open(who)
}

// mortal reports whether clients can be cut off.
func (c *C) mortal() bool {
	_, ok := can[Proxy](c, capProxy)
	return ok
}

func (c *C) own(p *client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, p)
}

// closeAll closes all clients of the check, at the same time, because each may
// take as long as its backend does.
func (c *C) closeAll() {
	c.mu.Lock()
	peers := c.clients
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range peers {
		wg.Go(func() {
			if p.link != nil {
				p.link.Heal()
			}
			if err := p.close(); err != nil {
				c.Logf("closing %s: %v", p.who, err)
			}
		})
	}
	wg.Wait()
}

// cutOff is the death of the client as the store sees it: no byte passes any more,
// and no connection is closed. It reports false if the client has no link.
func (p *client) cutOff() bool {
	if p.link == nil {
		return false
	}
	p.link.Drop(true, true)
	return true
}

// record is a lock that Close can leave in the store; see driver.Handle.KeepOnClose.
type record interface {
	distlock.Lock
	KeepOnClose()
}

// record returns h as one, if it is of a fixed term and Close can leave it in the store. Where entries live by a session, they end
// with it, and a Locker that driver.New has not made may free at Close all that it holds.
func (h *lease) record() (r record, ok bool) {
	if !h.fixed || h.p.c.timing.MaxExtend > 0 {
		return nil, false
	}
	return distlock.As[record](h.Lock)
}

// dies is the death of the holder as the store sees it. A client without a link is closed, and leaves its lock as a record, if it
// can: else its engine would free the name by itself, however long the store kept it.
func (h *lease) dies() {
	if h.p.cutOff() {
		return
	}
	if r, ok := h.record(); ok {
		r.KeepOnClose()
		h.p.mustClose()
	}
}

// revive lets a client clean up behind itself after it was cut off. It would else try
// to for as long as its leases last, be it years.
func (p *client) revive() {
	if p.link != nil {
		p.link.Heal()
	}
}

// answer is what a call for a lock has led to.
type answer struct {
	*lease                  // nil if it has failed
	err       error         // nil if it has not
	call, ret time.Duration // on the clock of the stamps
	asked     time.Duration // the TTL
}

// busy reports whether the answer is a definite "held", and nothing else.
func (a answer) busy() bool {
	return errors.Is(a.err, distlock.ErrHeld) && !errors.Is(a.err, context.DeadlineExceeded) &&
		!errors.Is(a.err, context.Canceled)
}

// lease is a lock that a client has got, with the stamps of the call that got it.
type lease struct {
	*oracle.Hold
	p         *client
	call, ret time.Duration
	asked     time.Duration
	fixed     bool            // not renewed
	done      <-chan struct{} // as Done returned it first
	refused   time.Duration   // the call of the last probe before it that found the name held; set by stalk
	unlocked  atomic.Bool     // or tried to be
	longest   time.Duration   // until when Extend has made it last, at the most; 0 if nothing was extended
}

// acquire calls Lock or TryLock. Without an option that says otherwise, the TTL is
// the Unit of the check.
func (p *client) acquire(ctx context.Context, op oracle.Op, name string, opts ...distlock.Option) answer {
	opts = append([]distlock.Option{distlock.TTL(p.c.Unit())}, opts...)
	var asked distlock.CallOptions
	for _, opt := range opts {
		opt(&asked)
	}
	call := p.c.now()
	h, err := p.call(ctx, op, name, opts)
	if errors.Is(err, oracle.ErrLockToo) {
		p.c.breach("A1", "%s called %s(%q): %v", p.who, op, name, err)
	}
	a := answer{err: err, call: call, ret: p.c.now(), asked: asked.TTL}
	if err == nil {
		p.holds.Add(1)
		a.lease = &lease{Hold: h, p: p, call: call, ret: a.ret, asked: asked.TTL, fixed: asked.NoRenewal, done: h.Done()}
	}
	return a
}

// try calls TryLock.
func (p *client) try(name string, opts ...distlock.Option) answer {
	ctx, cancel := p.c.patiently()
	defer cancel()
	return p.acquire(ctx, oracle.OpTry, name, opts...)
}

// lock calls Lock and waits for it for so long.
func (p *client) lock(name string, within time.Duration, opts ...distlock.Option) answer {
	ctx, cancel := context.WithTimeout(p.c.ctx, within)
	defer cancel()
	return p.acquire(ctx, oracle.OpLock, name, opts...)
}

// mustTry takes a name that has to be free, for the reason given in why.
func (p *client) mustTry(name, why string, opts ...distlock.Option) *lease {
	a := p.try(name, opts...)
	if a.err != nil {
		p.c.refused(p, a, name, why)
	}
	return a.lease
}

// slow reports whether the answer took so long that it tells nothing of the driver:
// a lease that has run out while the machine was asleep is rightly refused.
func (a answer) slow() bool { return !a.busy() && a.ret-a.call > a.asked/2 }

// refused ends the check over a name that was not to be had.
func (c *C) refused(p *client, a answer, name, why string) {
	if a.slow() {
		c.Inconclusivef("%s had no answer for %q within half the TTL of %v, only after %v: %v", p.who, name, a.asked, a.ret-a.call, a.err)
	}
	if !a.busy() {
		c.unheard(a.err, p.who, name)
	}
	c.Failf("%s was refused %q, %s: %v", p.who, name, why, a.err)
}

// unheard ends the check over an error of the store or the network: it says nothing of
// the check's rule. In virtual time there is neither, so all that goes wrong is the
// driver's doing.
func (c *C) unheard(err error, who, name string) {
	switch {
	case err == nil, definite(err), c.Virtual(), c.check.Group() == "core", c.check.Group() == "names":
	case errors.Is(err, context.Canceled) && c.ctx.Err() == nil:
	default:
		c.Inconclusivef("the store did not answer %s, which asked for %q, or answered with an error of its own: %v", who, name, err)
	}
}

// definite reports whether an error is the driver's own answer, and none of the store or the network.
func definite(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	said := []error{distlock.ErrHeld, distlock.ErrLost, distlock.ErrUnlocked, distlock.ErrClosed, distlock.ErrInvalid, distlock.ErrUnsupported, oracle.ErrNilLock}
	return slices.ContainsFunc(said, func(known error) bool { return errors.Is(err, known) })
}

// mustBeBusy probes a name that h holds: ErrHeld, and nothing else, is the answer.
func (p *client) mustBeBusy(name string, h *lease) { p.mustBeBusyAfter(name, h, "") }

// mustBeBusyAfter says in a failure what had happened before.
func (p *client) mustBeBusyAfter(name string, h *lease, before string) {
	until := h.end()
	a := p.try(name)
	switch {
	case a.err == nil:
		p.c.intruded(a, h, until, before)
	case a.busy():
	case a.slow():
		p.c.refused(p, a, name, "which is held")
	default:
		p.c.unheard(a.err, p.who, name)
		p.c.Failf("%s asked for %q, which %s holds, and was told %q; the answer must match ErrHeld", p.who, name, h.p.who, a.err)
	}
}

// mustBeRefused probes a name that A holds by other means than a lease.
func (p *client) mustBeRefused(name string) answer {
	got := p.try(name)
	if !got.busy() {
		p.c.unheard(got.err, p.who, name)
		p.c.Failf("%s tried for %q, which A holds; the answer must match ErrHeld, it was %s", p.who, name, describe(got.err))
	}
	return got
}

// end is how long the lock lasts for certain without a further renewal, by what its
// holder was told and by what it asked for.
func (h *lease) end() time.Duration {
	return max(h.Ends(), h.call+h.asked-h.p.c.skew(h.asked))
}

// closing is when h may end by itself at the earliest: an engine closes Done a little before the Deadline, since
// a timer may be late.
func (h *lease) closing() time.Duration {
	return h.Ends() - min(h.asked/100, time.Second) - h.p.c.skew(h.asked)
}

// intruded ends the check over a name that was granted although h held it until
// then: unless the grant came so late that h may rightly have run out. What had
// happened before is the likely cause; empty if nothing had.
func (c *C) intruded(a answer, h *lease, until time.Duration, before string) {
	if before != "" {
		before = "; before that, " + before
	}
	if a.ret < until {
		c.seems("H1", "%s was granted %q at %s although %s held it until %s, or longer: the name had two holders at once%s",
			a.p.who, a.Name(), millis(a.ret), h.p.who, millis(until), before)
	}
	if h.Believes() {
		c.seems("H1", "%s was granted %q at %s although %s still believes to hold it (its Err is nil, its Deadline %s)%s",
			a.p.who, a.Name(), millis(a.ret), h.p.who, millis(h.Ends()), before)
	}
	c.Inconclusivef("the probe by %s came back at %s, after the lease of %s had ended", a.p.who, millis(a.ret), h.p.who)
}

// free unlocks h. Its lease has to be alive.
func (h *lease) free() {
	c := h.p.c
	alive := h.Err() == nil
	call := c.now()
	err := h.unlock()
	switch {
	case err == nil:
	case !alive || c.now() >= h.closing() || c.now()-call > c.Unit()/2: // it may have arrived after the end
		c.Inconclusivef("%s came too late to unlock %q, at %s, its lease ended at %s: %v", h.p.who, h.Name(), millis(call), millis(h.end()), err)
	default:
		c.seems("H6", "%s held %q and unlocked it at %s, its lease lasting until %s, but Unlock returned: %v",
			h.p.who, h.Name(), millis(call), millis(h.end()), err)
	}
}

// unlock calls Unlock with the patience of a check.
func (h *lease) unlock() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.p.c.ctx), patience+h.p.c.Slack())
	defer cancel()
	return h.Unlock(ctx)
}

// warm makes sure that a client has new connections after a fault.
func (c *C) warm(p *client) {
	name := c.Name("warm-" + p.who)
	c.pollFor(p, name, patience, "nothing keeps it from its store any more").free()
}
