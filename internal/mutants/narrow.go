package mutants

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/patterns"
)

// narrowMutants look and then act with locks of one kind only: what most locks of a suite are not.
func narrowMutants() []Mutant {
	const says = "looks in one step and acts in another"
	looks := func(name, flaw, check string, d design) Mutant {
		return Mutant{Name: name, Flaw: flaw, KilledBy: []Kill{{check, says}}, design: d}
	}
	return []Mutant{
		looks("LooksAtRenewed", "compares with one request and deletes with another, on Unlock of a lock that is renewed", "pair/unlock",
			outside(flaw{release: releaseIf(func(c *claim) bool { return !c.asked.NoRenewal }, checkThenDelete)})),
		looks("LooksAtExtended", "compares with one request and deletes with another, on Unlock of a lock that was extended", "pair/unlock",
			outside(flaw{renew: noteExtended, release: releaseIf(func(c *claim) bool { return c.renewals > 0 }, checkThenDelete)})),
		looks("LooksAtWaited", "compares with one request and deletes with another, on Unlock of a lock that was waited for", "pair/unlock",
			outside(flaw{try: noteRefused, release: releaseIf(func(c *claim) bool { return c.refused }, checkThenDelete)})),
		looks("LooksAtLong", "looks with one request and takes with another, for names of more than a hundred bytes", "pair/try-free",
			outside(plain(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				if isLong(c.asked.Name) {
					return lookThenTake(ctx, c)
				}
				return c.inner.Try(ctx)
			}}))),
		looks("LooksAtQueue", "looks with one request and removes with another, on Break of a name that others wait for", "pair/break", outside(flaw{breaks: breakBlindly})),
		looks("LooksAfterFailure", "looks with one request and writes with another, on a renewal after one that has failed", "pair/renewal",
			outside(plain(flaw{renew: lookOnceFailed}))),
		looks("LooksAtSecond", "compares with one request and deletes with another, on Unlock of a name that its client had before", "pair/unlock",
			outside(flaw{try: noteSecond, release: releaseIf(func(c *claim) bool { return c.refused }, checkThenDelete)})),
		looks("LooksAtText", "compares with one request and deletes with another, on Unlock of a lock with a text of its own", "pair/unlock",
			outside(flaw{release: releaseIf(func(c *claim) bool { return strings.HasPrefix(c.asked.Holder, "a text") }, checkThenDelete)})),
		looks("LooksAtMinutes", "compares with one request and deletes with another, on Unlock of a lock for minutes", "pair/unlock",
			outside(flaw{release: releaseIf(func(c *claim) bool { return c.asked.TTL > time.Minute }, checkThenDelete)})),
		looks("LooksOnRepeat", "compares with one request and deletes with another, where a release has failed before", "pair/unlock",
			outside(flaw{release: releaseOnceFailed})),
		looks("LooksInBatch", "looks with one request and writes with another, on a renewal along with others", "pair/renewal",
			outside(plain(flaw{batch: lookIfMany}))),
	}
}

// rareMutants go wrong on an occasion that is rare, or long in coming.
func rareMutants() []Mutant {
	return []Mutant{
		{
			Name: "UnlocksDoneByName", Flaw: "deletes by name on Unlock with a context that has ended",
			KilledBy: []Kill{{"after/inherits", "with a context that was done"}},
			design:   inside(flaw{wrap: func(h *driver.Handle, c *claim) distlock.Lock { return byName{h, c} }}),
		},
		{
			Name: "KeepsOwnExpiry", Flaw: "grants the whole TTL where it finds its own entry, and leaves the expiry as it is",
			KilledBy: []Kill{{"expiry/granted-unheard", "was not prolonged"}},
			design:   inside(flaw{try: tryOwn}),
		},
		{
			Name: "DropsOldWaiters", Flaw: "drops a waiter from the queue that has waited for an hour",
			KilledBy: []Kill{{"handover/order-kept", "who came before it"}},
			design: inside(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				if !c.asked.NoWait && time.Since(c.began) > time.Hour {
					_ = c.inner.Release(ctx)
					c.began = time.Now()
				}
				return c.inner.Try(ctx)
			}}),
		},
		{
			Name: "CountsIn15Bits", Flaw: "keeps the counter of a name in 15 bits",
			KilledBy: []Kill{{"fence/many", "and the one before it"}},
			design: inside(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				g, err := c.inner.Try(ctx)
				if err == nil {
					c.driver.with(c.asked.Name, func(e *entry) {
						if e.owner != c.asked.Owner {
							e.token, e.owner = e.token%(1<<15-1)+1, c.asked.Owner
						}
						g.Token = e.token
					})
				}
				return g, err
			}, status: statusCounting, breaks: breakCounting}),
		},
		{
			Name: "RepeatsBreak", Flaw: "asks again for a Break whose reply was lost, and takes its own success for ErrLost",
			KilledBy: []Kill{{"after/unanswered", "it was its own doing"}},
			design: outside(flaw{breaks: func(ctx context.Context, d *flawed, name string, token int64) error {
				err := d.inner.Break(ctx, name, token)
				if err != nil && !errors.Is(err, distlock.ErrLost) && ctx.Err() == nil {
					err = d.inner.Break(ctx, name, token)
				}
				return err
			}}),
		},
	}
}

// callerMutants go wrong in what they tell their callers.
func callerMutants() []Mutant {
	return []Mutant{
		{
			Name: "SingleFlight", Flaw: "gives all concurrent TryLocks of a name in one client the lock of the first",
			KilledBy: []Kill{{"core/same-client-contends", "two holders at once"}},
			design: design{locker: func(_ *env, c *driver.Client) distlock.Locker {
				return &wrapper{Client: c, try: (&flights{byName: make(map[string]*flight)}).try}
			}},
		},
		{
			Name: "ExtendsToTheMost", Flaw: "extends by 365 days where more is asked for", KilledBy: []Kill{{"core/error-taxonomy", "Extend by more than 365 days"}},
			design: inside(flaw{wrap: func(h *driver.Handle, _ *claim) distlock.Lock { return modest{h} }}),
		},
		{
			Name: "ExtendsClosed", Flaw: "says that a lock was extended whose client was closed", KilledBy: []Kill{{"close/frees-held", "A's Extend must match ErrUnlocked"}},
			design: noting(design{driver: func(e *env) driver.Driver {
				return e.inside(flaw{wrap: func(h *driver.Handle, _ *claim) distlock.Lock { return deafToClose{h, e} }})
			}}),
		},
		{
			Name: "InvalidAlone", Flaw: "says that an argument is invalid, and not which", KilledBy: []Kill{{"core/error-taxonomy", "must name the argument"}},
			design: saying(func(e *distlock.Error) {
				if errors.Is(e.Err, distlock.ErrInvalid) {
					e.Err = distlock.ErrInvalid
				}
			}),
		},
		{
			Name: "CallsAllLock", Flaw: "calls every operation a Lock in its errors", KilledBy: []Kill{{"core/error-taxonomy", "with this operation and name"}},
			design: saying(func(e *distlock.Error) { e.Op = "lock" }),
		},
	}
}

// pileMutants leave something behind for each call of a kind.
func pileMutants() []Mutant {
	leaks := func(name, what string, f func(leak func()) flaw) Mutant {
		return Mutant{Name: name, Flaw: what + ", until Close", KilledBy: []Kill{{"leak/pile", "goroutines that were running"}},
			design: leaking(f)}
	}
	return []Mutant{
		leaks("LeaksRefused", "leaves a goroutine behind for every TryLock that is refused", func(leak func()) flaw {
			return flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				g, err := c.inner.Try(ctx)
				if c.asked.NoWait && errors.Is(err, distlock.ErrHeld) {
					leak()
				}
				return g, err
			}}
		}),
		leaks("LeaksLooks", "leaves a goroutine behind for every Inspect", func(leak func()) flaw {
			return flaw{inspect: func(ctx context.Context, d *flawed, name string) (distlock.Status, error) {
				leak()
				return d.look(ctx, name)
			}}
		}),
		leaks("LeaksServed", "leaves a goroutine behind for every wait that was served", func(leak func()) flaw {
			return flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				g, err := noteRefused(ctx, c)
				if err == nil && c.refused {
					leak()
				}
				return g, err
			}}
		}),
		leaks("LeaksCancelled", "leaves a goroutine behind for every wait that was cancelled", func(leak func()) flaw {
			return flaw{wait: func(ctx context.Context, c *claim) error {
				err := c.inner.Wait(ctx)
				if err != nil {
					leak()
				}
				return err
			}}
		}),
	}
}

// narrowPatterns are patterns that go wrong after an end that few think of.
func narrowPatterns() []Mutant {
	readWrite := func(name, flaw, says string, f func(l distlock.Locker, n int) (read, write distlock.Locker)) Mutant {
		return Mutant{Name: name, Flaw: flaw, KilledBy: []Kill{{"rw/dead-holder", says}},
			design: (&patterned{readWrite: f}).in()}
	}
	once := func(name, flaw string, counts func(err error, panicked bool) bool) Mutant {
		return Mutant{Name: name, Flaw: flaw, KilledBy: []Kill{{"once/failed-run", "the only run of it has"}},
			design: (&patterned{once: onceCounting(counts)}).in()}
	}
	return []Mutant{
		readWrite("DeadReader", "lets a reader that has died keep writers out for a year", "the lease of a dead holder", func(l distlock.Locker, n int) (distlock.Locker, distlock.Locker) {
			r, w := patterns.ReadWrite(l, n)
			return forYears{r}, w
		}),
		readWrite("DeadWriter", "lets a writer that has died keep all out for a year", "the lease of a dead holder", func(l distlock.Locker, n int) (distlock.Locker, distlock.Locker) {
			r, w := patterns.ReadWrite(l, n)
			return r, forYears{w}
		}),
		readWrite("OneReaderMore", "lets one reader more in than the bound", "which is the bound", func(l distlock.Locker, n int) (distlock.Locker, distlock.Locker) {
			return patterns.ReadWrite(l, n+1)
		}),
		once("CountsPanics", "takes a run that has panicked for one that has succeeded", func(_ error, panicked bool) bool { return panicked }),
		once("CountsCancelled", "takes a run that was cancelled for one that has succeeded", func(err error, _ bool) bool { return errors.Is(err, context.Canceled) }),
	}
}

func isLong(name string) bool { return len(name) > 100 }

func releaseIf(when func(c *claim) bool, wrong func(ctx context.Context, c *claim) error) func(ctx context.Context, c *claim) error {
	return func(ctx context.Context, c *claim) error {
		if when(c) {
			return wrong(ctx, c)
		}
		return c.inner.Release(ctx)
	}
}

func noteExtended(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	g, err := c.inner.Renew(ctx, ttl)
	if ttl > c.asked.TTL {
		c.renewals++
	}
	return g, err
}

func noteRefused(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	c.refused = c.refused || errors.Is(err, distlock.ErrHeld)
	return g, err
}

func breakBlindly(ctx context.Context, d *flawed, name string, token int64) error {
	st, err := d.inner.Inspect(ctx, name)
	switch {
	case err != nil:
		return err
	case st.Waiters == 0:
		return d.inner.Break(ctx, name, token)
	case !st.Held || st.Token != token:
		return distlock.ErrLost
	}
	return d.send(ctx, func(ctx context.Context) error { return remove(ctx, d.mem, name) })
}

func lookOnceFailed(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	if c.refused { // a renewal
		return lookThenRenew(ctx, c, ttl)
	}
	g, err := c.inner.Renew(ctx, ttl)
	c.refused = err != nil
	return g, err
}

func tryOwn(ctx context.Context, c *claim) (driver.Grant, error) {
	st, err := c.driver.mem.Inspect(ctx, c.asked.Name)
	if err != nil {
		return driver.Grant{}, err
	}
	mine := false
	c.driver.with(c.asked.Name, func(e *entry) { mine = e.owner == c.asked.Owner && e.token == st.Token })
	if mine && st.Held {
		return driver.Grant{Token: st.Token, TTL: c.asked.TTL}, nil
	}
	g, err := c.inner.Try(ctx)
	if err == nil {
		c.driver.with(c.asked.Name, func(e *entry) { e.owner, e.token = c.asked.Owner, g.Token })
	}
	return g, err
}

// byName is a lock that does without the owner when its caller is in a hurry.
type byName struct {
	*driver.Handle
	c *claim
}

// Unlock implements distlock.Lock.
func (l byName) Unlock(ctx context.Context) error {
	if ctx.Err() != nil {
		_ = remove(context.WithoutCancel(ctx), l.c.driver.mem, l.c.asked.Name) // ErrLost if nobody has it
	}
	return l.Handle.Unlock(ctx)
}

// modest is a lock that never asks for too much.
type modest struct{ *driver.Handle }

// Extend implements distlock.Lock.
func (l modest) Extend(ctx context.Context, ttl time.Duration) error {
	return l.Handle.Extend(ctx, min(ttl, distlock.MaxTTL))
}

// deafToClose is a lock that knows nothing of the end of its client.
type deafToClose struct {
	*driver.Handle
	e *env
}

// Extend implements distlock.Lock.
func (l deafToClose) Extend(ctx context.Context, ttl time.Duration) error {
	if l.e.closing.Load() {
		return nil
	}
	return l.Handle.Extend(ctx, ttl)
}

// flights are the TryLocks of a client that are under way.
type flights struct {
	mu     sync.Mutex
	byName map[string]*flight
}

// flight is one of them.
type flight struct {
	over chan struct{} // closed when the fields below are set
	lock distlock.Lock
	err  error
}

func (f *flights) try(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
	f.mu.Lock()
	if common := f.byName[name]; common != nil {
		f.mu.Unlock()
		<-common.over
		return common.lock, common.err
	}
	first := &flight{over: make(chan struct{})}
	f.byName[name] = first
	f.mu.Unlock()
	defer close(first.over)
	first.lock, first.err = call(ctx, name, opts...)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byName, name)
	return first.lock, first.err
}

// saying changes the errors of a client.
func saying(change func(*distlock.Error)) design {
	f := func(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
		l, err := call(ctx, name, opts...)
		if e, ok := errors.AsType[*distlock.Error](err); ok {
			said := *e
			change(&said)
			return nil, &said
		}
		return l, err
	}
	return wrapper{lock: f, try: f}.in()
}

// leaking has goroutines that end with Close.
func leaking(f func(leak func()) flaw) design {
	return design{driver: func(e *env) driver.Driver {
		end := make(chan struct{})
		all := f(func() { go func() { <-end }() })
		all.close = func(*env) error { close(end); return nil }
		return e.inside(all)
	}}
}

// forYears takes locks that outlive a dead holder.
type forYears struct{ distlock.Locker }

// Lock implements distlock.Locker.
func (f forYears) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return f.Locker.Lock(ctx, name, append(opts, distlock.TTL(distlock.MaxTTL))...)
}

// onceCounting counts some failed runs as good.
func onceCounting(counts func(err error, panicked bool) bool) func(context.Context, *patterned, string, time.Duration, func(context.Context) error) (bool, error) {
	return func(ctx context.Context, p *patterned, name string, period time.Duration, fn func(context.Context) error) (bool, error) {
		var failed error
		var panicked any
		ran, err := patterns.OncePer(ctx, p.Client, name, period, func(ctx context.Context) error {
			err := func() (err error) {
				defer func() { panicked = recover() }()
				return fn(ctx)
			}()
			if counts(err, panicked != nil) {
				failed = err
				return nil
			}
			return err
		})
		if panicked != nil {
			panic(panicked)
		}
		return ran, errors.Join(err, failed)
	}
}
