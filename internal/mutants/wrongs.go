package mutants

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

func wrongs() []wrong { return slices.Concat(endWrongs(), leaseWrongs(), toldWrongs()) }

// endWrongs are of the end of a lock, and of those who wait for it.
func endWrongs() []wrong {
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
	}
}

// leaseWrongs are of how long it lasts, and whether it is exclusive.
func leaseWrongs() []wrong {
	return []wrong{
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
	}
}

// toldWrongs are of what is told of it, and of Break.
func toldWrongs() []wrong {
	return []wrong{
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
