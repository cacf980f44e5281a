package mutants

import (
	"context"
	"errors"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// Generated returns a driver for each pair of an occasion and a flaw: it goes wrong in that
// one way, only with names that have seen that occasion. TestGenerated demands that the
// group after/ of the suite finds each.
func Generated() []Mutant {
	var all []Mutant
	for _, o := range occasions() {
		for _, w := range wrongs() {
			if o.never[w.name] {
				continue
			}
			all = append(all, Mutant{
				Name: w.name + o.name, Flaw: w.flaw + " " + o.when, KilledBy: []Kill{{Check: "after/" + w.effect}},
				design: design{driver: func(e *env) driver.Driver {
					f := flaw{}
					w.make(&f, func(name string) (yes bool) {
						e.with(name, func(n *entry) { yes = n.seen })
						return yes
					})
					o.watch(e, &f)
					return e.inside(f)
				}},
			})
		}
	}
	return all
}

// occasion is what a name has to have seen. watch notes it.
type occasion struct {
	name, when string
	watch      func(e *env, f *flaw)
	never      map[string]bool // flaws that nobody can notice then
}

// wrong is a flaw that shows where its function says so.
type wrong struct {
	name, flaw, effect string
	make               func(f *flaw, now func(name string) bool)
}

// note notes the occasion for a name.
func (e *env) note(name string) { e.with(name, func(n *entry) { n.seen = true }) }

// The hooks below call f after the right or wrong thing was done.

func afterTry(f *flaw, then func(c *claim, err error)) {
	do := f.try
	f.try = func(ctx context.Context, c *claim) (g driver.Grant, err error) {
		if do != nil {
			g, err = do(ctx, c)
		} else {
			g, err = c.inner.Try(ctx)
		}
		then(c, err)
		return g, err
	}
}

func afterRenew(f *flaw, then func(c *claim, ttl time.Duration)) {
	do := f.renew
	f.renew = func(ctx context.Context, c *claim, ttl time.Duration) (g driver.Grant, err error) {
		if do != nil {
			g, err = do(ctx, c, ttl)
		} else {
			g, err = c.inner.Renew(ctx, ttl)
		}
		if err == nil {
			then(c, ttl)
		}
		return g, err
	}
}

func afterRelease(f *flaw, then func(c *claim)) {
	do := f.release
	f.release = func(ctx context.Context, c *claim) error {
		var err error
		if do != nil {
			err = do(ctx, c)
		} else {
			err = c.inner.Release(ctx)
		}
		then(c)
		return err
	}
}

func nevers(names ...string) map[string]bool {
	never := make(map[string]bool)
	for _, n := range names {
		never[n] = true
	}
	return never
}

func occasions() []occasion {
	early := []string{"ShortLease", "LongLease"} // of the grant, which is over when this happens
	return []occasion{
		{"Extended", "after it was extended", func(e *env, f *flaw) {
			afterRenew(f, func(c *claim, ttl time.Duration) {
				if ttl > c.asked.TTL {
					e.note(c.asked.Name)
				}
			})
		}, nevers(early...)},
		{"Renewed", "after a hundred renewals", func(e *env, f *flaw) {
			afterRenew(f, func(c *claim, _ time.Duration) {
				if c.renewals++; c.renewals > 100 {
					e.note(c.asked.Name)
				}
			})
		}, nevers(early...)},
		{"Again", "after it was unlocked by another, or before", func(e *env, f *flaw) {
			afterRelease(f, func(c *claim) {
				if c.won {
					e.note(c.asked.Name)
				}
			})
		}, nil},
		{"Expired", "after a lease of it has run out", func(e *env, f *flaw) {
			afterRelease(f, func(c *claim) {
				if c.won {
					e.with(c.asked.Name, func(n *entry) { n.ended = true })
				}
			})
			afterTry(f, func(c *claim, err error) {
				if err == nil {
					e.with(c.asked.Name, func(n *entry) { n.seen, n.ended = n.seen || !n.ended, false })
				}
			})
		}, nevers(early...)},
		{"Refused", "after a TryLock was refused it", func(e *env, f *flaw) {
			afterTry(f, func(c *claim, err error) {
				if errors.Is(err, distlock.ErrHeld) && c.asked.NoWait {
					e.note(c.asked.Name)
				}
			})
		}, nil},
		{"Waited", "after somebody has waited for it", func(e *env, f *flaw) {
			afterTry(f, func(c *claim, err error) {
				if errors.Is(err, distlock.ErrHeld) && !c.asked.NoWait {
					e.note(c.asked.Name)
				}
			})
		}, nevers(early...)},
		{"Left", "after a waiter has given it up", func(e *env, f *flaw) {
			afterRelease(f, func(c *claim) {
				if !c.won && !c.asked.NoWait {
					e.note(c.asked.Name)
				}
			})
		}, nil},
		{"Broken", "after a lock of it was broken", func(e *env, f *flaw) {
			do := f.breaks
			f.breaks = func(ctx context.Context, d *flawed, name string, token int64) (err error) {
				if do != nil {
					err = do(ctx, d, name, token)
				} else {
					err = d.inner.Break(ctx, name, token)
				}
				if err == nil {
					e.note(name)
				}
				return err
			}
		}, nil},
		{"Looked", "after somebody has looked at it", func(e *env, f *flaw) {
			do := f.status
			f.status = func(e *env, st *distlock.Status) {
				if do != nil {
					do(e, st)
				}
				e.note(st.Name)
			}
		}, nevers(early...)},
		{"Handed", "after one that waited has got it", func(e *env, f *flaw) {
			afterTry(f, func(c *claim, err error) {
				if err != nil {
					c.refused = true
				} else if c.refused {
					e.note(c.asked.Name)
				}
			})
		}, nevers(early...)},
		{"Term", "that is held for a fixed term", func(e *env, f *flaw) {
			request := func(e *env, r *driver.Request) {
				if r.NoRenewal {
					e.note(r.Name)
				}
			}
			f.request = request
		}, nevers("NotRenewed")},
		{"Brief", "that is held for less than a second", func(e *env, f *flaw) {
			f.request = func(e *env, r *driver.Request) {
				if r.TTL < time.Second {
					e.note(r.Name)
				}
			}
		}, nil},
		{"Among", "that is held beside fifty others", func(e *env, f *flaw) {
			afterTry(f, func(c *claim, err error) {
				if err == nil {
					e.many.Add(1)
				}
			})
			f.request = func(e *env, r *driver.Request) {
				if e.many.Load() > 50 {
					e.note(r.Name)
				}
			}
		}, nil},
		{"Sibling", "whose client has unlocked another", func(e *env, f *flaw) {
			afterTry(f, func(c *claim, err error) {
				if err == nil {
					e.mine.Store(c.asked.Name, true)
				}
			})
			afterRelease(f, func(c *claim) {
				e.mine.Delete(c.asked.Name)
				e.mine.Range(func(name, _ any) bool { e.note(name.(string)); return true })
			})
		}, nevers(early...)},
	}
}

func wrongs() []wrong {
	return []wrong{
		{"Deaf", "wakes nobody who waits for a name", "woken", func(f *flaw, now func(string) bool) {
			f.wait = func(ctx context.Context, c *claim) error {
				err := c.inner.Wait(ctx)
				if now(c.asked.Name) {
					<-ctx.Done()
					return ctx.Err()
				}
				return err
			}
		}},
		{"NotFreed", "releases nothing of a name, and says that it has,", "frees", func(f *flaw, now func(string) bool) {
			f.release = func(ctx context.Context, c *claim) error {
				if c.won && now(c.asked.Name) {
					return nil
				}
				return c.inner.Release(ctx)
			}
		}},
		{"SaysLost", "says that a lock was lost when it unlocks a name", "frees", func(f *flaw, now func(string) bool) {
			f.release = func(ctx context.Context, c *claim) error {
				err := c.inner.Release(ctx)
				if c.won && now(c.asked.Name) {
					return distlock.ErrLost
				}
				return err
			}
		}},
		{"LeavesWaiter", "leaves the place of a waiter that has given up a name", "leaves", func(f *flaw, now func(string) bool) {
			f.release = func(ctx context.Context, c *claim) error {
				if !c.won && now(c.asked.Name) {
					return nil
				}
				return c.inner.Release(ctx)
			}
		}},
		{"NotRenewed", "confirms renewals of a name that it has not sent", "lives", func(f *flaw, now func(string) bool) {
			f.renew = func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
				if ttl <= c.asked.TTL && now(c.asked.Name) {
					return driver.Grant{Token: c.token, TTL: ttl}, nil
				}
				return c.inner.Renew(ctx, ttl)
			}
		}},
		{"ExtendsShort", "extends by three quarters of what was asked for a name", "extends", func(f *flaw, now func(string) bool) {
			f.renew = func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
				if ttl <= c.asked.TTL || !now(c.asked.Name) {
					return c.inner.Renew(ctx, ttl)
				}
				g, err := c.inner.Renew(ctx, ttl*3/4)
				g.TTL = ttl
				return g, err
			}
		}},
		{"ExtendsLong", "extends by half as much again as was asked for a name", "extends", func(f *flaw, now func(string) bool) {
			f.renew = func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
				if ttl <= c.asked.TTL || !now(c.asked.Name) {
					return c.inner.Renew(ctx, ttl)
				}
				g, err := c.inner.Renew(ctx, ttl*3/2)
				g.TTL = ttl
				return g, err
			}
		}},
		{"ShortLease", "keeps half of the lease that it grants for a name", "expires", leasing(func(ttl time.Duration) time.Duration { return ttl / 2 })},
		{"LongLease", "keeps a lease half as long again as it grants for a name", "expires", leasing(func(ttl time.Duration) time.Duration { return ttl * 3 / 2 })},
		{"GrantsHeld", "grants a TryLock of a held name", "excludes", func(f *flaw, now func(string) bool) {
			f.try = func(ctx context.Context, c *claim) (driver.Grant, error) {
				g, err := c.inner.Try(ctx)
				if errors.Is(err, distlock.ErrHeld) && c.asked.NoWait && now(c.asked.Name) {
					return driver.Grant{Token: 1 << 40, TTL: c.asked.TTL}, nil
				}
				return g, err
			}
		}},
		{"WrongHolder", "names another holder in refusals of a name", "told", func(f *flaw, now func(string) bool) {
			f.try = func(ctx context.Context, c *claim) (driver.Grant, error) {
				g, err := c.inner.Try(ctx)
				if held, ok := errors.AsType[*distlock.HeldError](err); ok && now(c.asked.Name) {
					held.Holder = "nobody"
				}
				return g, err
			}
		}},
		{"TextLost", "does not show the text of the holder of a name", "shows", showing(func(st *distlock.Status) { st.Holder = "" })},
		{"RestHalved", "shows half of what is left of the lease of a name", "shows", showing(func(st *distlock.Status) { st.Remaining /= 2 })},
		{"RestLost", "shows no rest of the lease of a name", "shows", showing(func(st *distlock.Status) { st.Remaining = 0 })},
		{"WaiterMore", "counts a waiter too many for a name", "shows", showing(func(st *distlock.Status) { st.Waiters++ })},
		{"Redated", "shows now for the time of the grant of a name", "shows", showing(func(st *distlock.Status) { st.AcquiredAt = time.Now() })},
		{"TokenMore", "shows the next token for that of the holder of a name", "tokens", showing(func(st *distlock.Status) { st.Token++ })},
		{"BreaksNot", "says that it has broken the lock of a name, and has not,", "breaks", func(f *flaw, now func(string) bool) {
			f.breaks = func(ctx context.Context, d *flawed, name string, token int64) error {
				if now(name) {
					return nil
				}
				return d.inner.Break(ctx, name, token)
			}
		}},
		{"BreaksLost", "says that a lock is lost when it breaks that of a name", "breaks", func(f *flaw, now func(string) bool) {
			f.breaks = func(ctx context.Context, d *flawed, name string, token int64) error {
				err := d.inner.Break(ctx, name, token)
				if now(name) {
					return distlock.ErrLost
				}
				return err
			}
		}},
	}
}

// leasing keeps another lease than it grants.
func leasing(kept func(time.Duration) time.Duration) func(*flaw, func(string) bool) {
	return func(f *flaw, now func(string) bool) {
		f.try = func(ctx context.Context, c *claim) (driver.Grant, error) {
			g, err := c.inner.Try(ctx)
			if err == nil && now(c.asked.Name) {
				err = c.reset(ctx, kept(c.asked.TTL))
			}
			return g, err
		}
	}
}

// showing changes what is shown of a held name.
func showing(change func(*distlock.Status)) func(*flaw, func(string) bool) {
	return func(f *flaw, now func(string) bool) {
		f.status = func(_ *env, st *distlock.Status) {
			if st.Held && now(st.Name) {
				change(st)
			}
		}
	}
}
