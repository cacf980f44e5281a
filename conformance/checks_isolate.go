package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

func isolateChecks() []Check {
	return []Check{
		{ID: "isolate/hung-request", Clause: "I1", Mandatory: true, Needs: []Cap{capProxy}, Run: isolateHungRequest,
			Rule: "requests that hang, on their way for other names, hold up neither renewals nor new calls"},
		{ID: "isolate/hung-renewal", Clause: "I1", Mandatory: true, Needs: []Cap{capProxy}, Run: isolateHungRenewal,
			Rule: "a renewal that hangs is sent again in time, and holds up neither other renewals nor new calls"},
		{ID: "isolate/stuck-name", Clause: "I1", Mandatory: true, Run: isolateStuckName,
			Rule: "a name whose entry is stuck in the store neither delays nor loses the other names of its client, also while that sweeps and lists"},
		{ID: "isolate/stuck-server", Clause: "I1", Mandatory: true, Alone: true, Run: isolateStuckServer,
			Rule: "of several servers one is stuck: only what it alone decides of is lost or refused"},
	}
}

// needApart skips the check where requests follow each other on a connection.
func (p *client) needApart() {
	if _, ok := p.link.(interface{ Independent() }); !ok {
		p.c.Skipf("the link cannot hold up one request alone: others may share its connection")
	}
}

// hangs makes the next request of p hang. f sends it in a goroutine of its own; the
// channel is closed when f has returned. One renewal at the most may come before it: a lock outlives one that hangs.
func (p *client) hangs(what, while string, f func()) <-chan struct{} {
	c := p.c
	met, over := p.meets(p.link.HoldRequest, c.soon(), f)
	if !met {
		c.Failf("%s; meanwhile %s called %s, and within %v no request was sent for it", while, p.who, what, c.soon())
	}
	return over
}

// meets arms a fault for the next message of p, has f send that in a goroutine of its own, and reports whether it has met the
// fault within the bound. The channel is closed when f has returned.
func (p *client) meets(arm func(int), bound time.Duration, f func()) (met bool, over <-chan struct{}) {
	returned, fired := make(chan struct{}), p.link.Fired()
	arm(1)
	p.c.Go(func() {
		defer close(returned)
		f()
	})
	return p.c.eventually(bound, func() bool { return p.link.Fired() > fired }), returned
}

// mustWork demands that a client takes, extends and frees names as quickly as ever.
func (p *client) mustWork(label, while string) {
	for _, op := range []oracle.Op{oracle.OpTry, oracle.OpLock} {
		p.mustUse(op, p.c.Name(fmt.Sprint(label, "-", op)), while)
	}
}

// mustUse does so with one name.
func (p *client) mustUse(op oracle.Op, name, while string) {
	c := p.c
	began, within := c.now(), c.soon()
	ctx, cancel := context.WithTimeout(c.ctx, within)
	a := p.acquire(ctx, op, name, distlock.TTL(c.long()))
	for lost := false; a.err != nil && ctx.Err() == nil && (lost || !a.busy()); { // a connection may break for other reasons
		lost = lost || !a.busy() // what that call has got is undone in a while
		c.sleep(c.poll())
		a = p.acquire(ctx, op, name, distlock.TTL(c.long()))
	}
	cancel()
	if a.err != nil {
		c.doubt(began, began+c.Slack()/4) // the context did not wait for the machine
		c.Failf("%s; meanwhile %s called %s(%q), which nobody holds, and within %v was told: %v", while, p.who, op, name, within, a.err)
	}
	p.mustOperate(name, a.Token(), while)
	ctx, cancel = context.WithTimeout(c.ctx, within)
	defer cancel()
	began = c.now()
	extended := c.answered(ctx, func() error { return a.Extend(ctx, c.long()) })
	if err := errors.Join(extended, a.Unlock(ctx)); err != nil {
		c.doubt(began, began+c.Slack()/4)
		c.Failf("%s; meanwhile %s extended and unlocked %q, and within %v was told: %v", while, p.who, name, within, err)
	}
}

// answered asks again until there is an answer: a connection may break for other reasons.
func (c *C) answered(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if err == nil || definite(err) || ctx.Err() != nil {
			return err
		}
		c.sleep(c.poll())
	}
}

// mustOperate demands that p can look at what it holds, and not break another hold of it: operators may be slow, but hang for nothing.
func (p *client) mustOperate(name string, token int64, while string) {
	c := p.c
	ctx, cancel := c.patiently()
	defer cancel()
	began := c.now()
	looked := c.answered(ctx, func() error { _, err := p.inspect(ctx, name); return err })
	broke := c.answered(ctx, func() error { return p.breakHold(ctx, name, token+1) })
	for what, err := range map[string]error{"Inspect": looked, "Break by another token": broke} {
		if err != nil && !errors.Is(err, distlock.ErrLost) && !errors.Is(err, distlock.ErrUnsupported) {
			c.doubt(began, began+c.Slack()/4)
			c.Failf("%s; meanwhile %s of %q by %s returned, after %v: %v", while, what, name, p.who, c.now()-began, err)
		}
	}
}

// mustWaitAndLeave demands that a client that gives up leaves nothing behind, and that one that waits is woken, as ever.
func (p *client) mustWaitAndLeave(name string, holder *client, while string) {
	c, ttl := p.c, distlock.TTL(p.c.long())
	h := holder.mustTry(name, "which is fresh", ttl)
	w := p.begin(name, ttl)
	c.sleep(quiet)
	w.giveUp()
	h.unlocksSoon(while)
	h = c.pollFor(holder, name, c.timing.CleanupBound+c.soon(), fmt.Sprintf("%s had given up, and %s had unlocked it, while %s", p.who, holder.who, while), ttl)
	w = p.begin(name, ttl)
	c.awaitQueued(name, 1)
	h.unlocksSoon(while)
	w.woken(c.soon(), fmt.Sprintf("%s had unlocked it, while %s", holder.who, while)).free()
}

// unlocksSoon unlocks h, as quickly as ever.
func (h *lease) unlocksSoon(while string) {
	c := h.p.c
	ctx, cancel := context.WithTimeout(c.ctx, c.soon())
	defer cancel()
	began := c.now()
	if err := h.Unlock(ctx); err != nil {
		c.doubt(began, began+c.Slack()/4)
		c.Failf("%s; meanwhile %s unlocked %q, and within %v was told: %v", while, h.p.who, h.Name(), c.soon(), err)
	}
}

// mustGoOn demands for so long that every lock is renewed and that the client works.
func (c *C) mustGoOn(p *client, held []*lease, probe *client, until time.Duration, while string) {
	for i := 0; ; i++ {
		p.mustWork(fmt.Sprint("w", i), while)
		probe.mustWork(fmt.Sprint("v", i), while)
		p.mustWaitAndLeave(c.Name(fmt.Sprint("u", i)), probe, while)
		for _, h := range held {
			c.mustLive(h, "while "+while)
		}
		if c.now() > until {
			break
		}
		c.sleep(c.Unit() / 4)
	}
	c.mustKeep(held, probe, while)
}

func isolateHungRequest(c *C) {
	const many = 24
	a, b := c.openVia("A"), c.open("B")
	a.needApart()
	var over []<-chan struct{}
	for i := range many {
		ctx, cancel := context.WithTimeout(c.ctx, 3*c.Unit())
		defer cancel()
		op, name := []oracle.Op{oracle.OpTry, oracle.OpLock}[i%2], c.Name(fmt.Sprint("hung", i))
		over = append(over, a.hangs(fmt.Sprintf("%s(%q)", op, name), fmt.Sprintf("%d calls for other names hang", i), func() {
			if got := a.acquire(ctx, op, name, distlock.TTL(c.fits(4*c.Unit()))); got.err == nil {
				_ = got.unlock()
			}
		}))
	}
	while := fmt.Sprintf("%d calls for other names hang", many)
	held := c.takeAll(a, c.names(6), "which is fresh, while "+while) // not before: a renewal would be the next request, and hang
	extended, unlocked := held[4], held[5]
	held = held[:4]
	c.mustGoOn(a, held, b, c.now(), while)
	over = append(over, a.hangs("Extend", while, func() { _ = extended.Extend(c.ctx, c.Unit()) }))
	over = append(over, a.hangs("Unlock", while+", and one Extend", func() { _ = unlocked.unlock() }))
	c.mustGoOn(a, held, b, c.now()+c.Unit()*5/4, while+", and Extend and Unlock of two other locks")
	a.link.Heal()
	for _, done := range over {
		if !c.within(done, patience+c.Unit()*3+c.Slack()) {
			c.Failf("a call that had hung has not returned %v after its request went on", patience+c.Unit()*3)
		}
	}
	c.freeAll(held)
}

func isolateHungRenewal(c *C) {
	a, b := c.openVia("A"), c.open("B")
	a.needApart()
	held := c.takeAll(a, c.names(4), "which is fresh")
	c.watchStore() // a renewal that hangs leaves a quarter of the TTL for the next
	for round := range 3 {
		fired := a.link.Fired()
		a.link.HoldRequest(1)
		if !c.eventually(c.Unit()/2, func() bool { return a.link.Fired() > fired }) {
			c.Inconclusivef("A has renewed nothing for half a unit")
		}
		while := fmt.Sprintf("a renewal hangs, number %d", round+1)
		c.mustGoOn(a, held, b, c.now()+c.Unit(), while)
	}
	a.link.Heal()
	c.freeAll(held)
}

func isolateStuckName(c *C) {
	blocker, ok := c.harness.(NameBlocker)
	if !ok {
		c.Skipf("the harness is no NameBlocker")
	}
	a, b := c.open("A"), c.open("B")
	held := c.takeAll(a, c.names(6), "which is fresh")
	stuck := a.mustTry(c.Name("stuck"), "which is fresh")
	asked := c.Name("asked")
	free := []string{c.Name("free0"), c.Name("free1"), c.Name("free2")}
	for _, name := range append(free, asked) {
		b.mustTry(name, "which is fresh").free()
	}
	unblock := c.blockNames(blocker, stuck.Name(), asked)
	defer func() { _ = unblock() }()
	leave := c.keepAsking([]*client{a, b}, asked, stuck.Name())
	defer leave()
	c.sleep(quiet)
	while := fmt.Sprintf("%q and %q are stuck, one of them held by A", stuck.Name(), asked)
	use := func() {
		for i, name := range free {
			[]*client{a, b}[i%2].mustUse(oracle.OpTry, name, while+", and A and B sweep the store")
		}
	}
	use()
	c.mustGoOn(a, held, b, c.now()+c.Unit()*5/2, while)
	use() // a store may sweep nothing that is younger than a second
	over := leave()
	if err := unblock(); err != nil {
		c.Failf("the harness could not undo what it had made stuck: %v", err)
	}
	for _, done := range over {
		if !c.within(done, patience+c.Slack()) {
			c.Failf("a call for a name that was stuck has not returned %v after it was freed, though its context has ended", patience)
		}
	}
	_ = stuck.unlock()
	for _, name := range []string{stuck.Name(), asked} {
		c.pollFor(b, name, c.lasts(c.Unit())+c.timing.CleanupBound+patience, "it is stuck no more, and everybody has left it").free()
	}
	c.freeAll(held)
}

// blockNames makes names stuck, and returns what undoes it; that does nothing the
// second time.
func (c *C) blockNames(blocker NameBlocker, names ...string) (unblock func() error) {
	var undo []func() error
	unblock = func() error {
		var errs []error
		for _, f := range undo {
			errs = append(errs, f())
		}
		undo = nil
		return errors.Join(errs...)
	}
	for _, name := range names {
		ctx, cancel := context.WithTimeout(c.ctx, patience)
		f, err := blocker.BlockName(ctx, name)
		cancel()
		if err != nil {
			_ = unblock()
			c.Inconclusivef("the harness could not make %q stuck: %v", name, err)
		}
		undo = append(undo, f)
	}
	return unblock
}

// keepAsking has each client ask for each name again and again, by Try and by Lock, and sweep
// the store and list it. What it returns ends that, and returns what is closed when the last calls have
// returned.
func (c *C) keepAsking(clients []*client, names ...string) (leave func() []<-chan struct{}) {
	ctx, cancel := context.WithCancel(c.ctx)
	var over []<-chan struct{}
	keep := func(ask func(context.Context)) {
		done := make(chan struct{})
		over = append(over, done)
		c.Go(func() {
			defer close(done)
			for ctx.Err() == nil {
				call, cancel := context.WithTimeout(ctx, c.Unit()/2)
				ask(call)
				cancel()
				c.within(ctx.Done(), c.Unit()/10)
			}
		})
	}
	for _, p := range clients {
		for _, op := range []oracle.Op{oracle.OpTry, oracle.OpLock} {
			for _, name := range names {
				keep(func(ctx context.Context) {
					if got := p.acquire(ctx, op, name); got.err == nil {
						_ = got.unlock()
					}
				})
			}
		}
		keep(func(ctx context.Context) {
			_, _ = p.sweepIdle(ctx, time.Nanosecond) // which may wait for what is stuck
			_, _ = p.listed(ctx, c.Name(""))
			c.within(ctx.Done(), c.Unit()/2) // other checks use the store as well
		})
	}
	return func() []<-chan struct{} {
		cancel()
		return over
	}
}

func isolateStuckServer(c *C) {
	blocker, ok := c.harness.(ServerBlocker)
	if !ok {
		c.Skipf("the harness is no ServerBlocker")
	}
	a, b := c.open("A"), c.open("B")
	names := c.names(24)
	ttl := distlock.TTL(c.fits(2 * c.Unit()))
	held := c.takeAll(a, names, "which is fresh", ttl)
	ctx, cancel := context.WithTimeout(c.ctx, 2*patience)
	defer cancel()
	alone, unblock, err := blocker.BlockServer(ctx)
	if err != nil {
		c.Inconclusivef("the harness could not make a server stuck: %v", err)
	}
	since := c.now()
	var safe, doomed []*lease
	for _, h := range held {
		if alone(h.Name()) {
			doomed = append(doomed, h)
		} else {
			safe = append(safe, h)
		}
	}
	while := fmt.Sprintf("one server is stuck, which alone decides of %d of %d names", len(doomed), len(held))
	for i := 0; c.now() < since+5*c.Unit(); i++ {
		for _, h := range safe {
			c.mustLive(h, "while "+while)
		}
		if name := c.Name(fmt.Sprint("w", i)); !alone(name) {
			a.mustUse(oracle.OpTry, name, while)
		}
		c.sleep(c.Unit() / 4)
	}
	c.mustKeep(safe, b, while)
	if err := unblock(); err != nil {
		c.Failf("the harness could not undo what it had made stuck: %v", err)
	}
	c.freeAll(safe)
	for _, h := range doomed {
		_ = h.unlock()
		c.pollFor(b, h.Name(), c.lasts(h.asked)+c.timing.CleanupBound+patience, "the server is in order again").free()
	}
}
