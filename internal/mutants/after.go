package mutants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

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

// early are flaws of the grant: that is over when most occasions come.
var early = []string{"ShortLease", "LongLease"}

func occasions() []occasion {
	return slices.Concat(heldOccasions(), askedOccasions(), operatedOccasions(), grantedOccasions())
}

// heldOccasions are of what its holders have done.
func heldOccasions() []occasion {
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
	}
}

// askedOccasions are of others that have asked for it.
func askedOccasions() []occasion {
	return []occasion{
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
		{"ItsOwn", "that its own client waits for", func(e *env, f *flaw) {
			holding := func(c *claim) string { return fmt.Sprint(e.id, " holds ", c.asked.Name) }
			afterTry(f, func(c *claim, err error) {
				mine := false
				e.with(holding(c), func(n *entry) { mine, n.seen = n.seen, n.seen || err == nil })
				if mine && err != nil && !c.asked.NoWait {
					e.note(c.asked.Name)
				}
			})
			afterRelease(f, func(c *claim) {
				if c.won {
					e.with(holding(c), func(n *entry) { n.seen = false })
				}
			})
		}, nevers(append(early, "ExtendsShort", "ExtendsLong")...)},
		{"Left", "after a waiter has given it up", func(e *env, f *flaw) {
			afterRelease(f, func(c *claim) {
				if !c.won && !c.asked.NoWait {
					e.note(c.asked.Name)
				}
			})
		}, nil},
	}
}

// operatedOccasions are of operators.
func operatedOccasions() []occasion {
	return []occasion{
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
	}
}

// grantedOccasions are of how it was granted.
func grantedOccasions() []occasion {
	return []occasion{
		{"Handed", "after one that waited has got it", func(e *env, f *flaw) {
			afterTry(f, func(c *claim, err error) {
				if err != nil {
					c.refused = true
				} else if c.refused {
					e.note(c.asked.Name)
				}
			})
		}, nevers(early...)},
		{"Direct", "that was granted to a Lock at once", func(e *env, f *flaw) {
			afterTry(f, func(c *claim, err error) {
				c.refused = c.refused || err != nil
				if !c.refused && !c.asked.NoWait {
					e.note(c.asked.Name)
				}
			})
		}, nevers(early...)},
		asking("Term", "that is held for a fixed term", func(r *driver.Request) bool { return r.NoRenewal }, "NotRenewed"),
		asking("Brief", "that is held for less than a second", func(r *driver.Request) bool { return r.TTL < time.Second }),
		asking("Long", "that is held for more than ten minutes", func(r *driver.Request) bool { return r.TTL > 10*time.Minute }),
		asking("LongName", "of more than a hundred bytes", func(r *driver.Request) bool { return isLong(r.Name) }),
		asking("OddName", "beyond ASCII", func(r *driver.Request) bool {
			return strings.ContainsFunc(r.Name, func(r rune) bool { return r > unicode.MaxASCII })
		}),
		asking("Nameless", "whose holder has no text", func(r *driver.Request) bool { return r.Holder == "" }, "TextLost"),
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

// asking is the occasion that somebody has asked for the name in some way.
func asking(name, when string, how func(*driver.Request) bool, never ...string) occasion {
	return occasion{name, when, func(_ *env, f *flaw) {
		f.request = func(e *env, r *driver.Request) {
			if how(r) {
				e.note(r.Name)
			}
		}
	}, nevers(never...)}
}
