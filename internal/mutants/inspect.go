package mutants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// inspectMutants tell wrong things of a name.
func inspectMutants() []Mutant {
	return slices.Concat(statusMutants(), waiterMutants(), lookMutants(), textMutants())
}

// statusMutants tell a wrong state, or wrong times.
func statusMutants() []Mutant {
	return []Mutant{
		{
			Name: "ShowsExpired", Flaw: "shows a holder until it has unlocked, also after its lease has ended",
			Seen:     "a status that is read from a row without looking at its expiry",
			KilledBy: []Kill{{"inspect/free", "had to be told that nobody holds it"}},
			design:   inside(flaw{try: tryAndNote, release: releaseAndNote, inspect: inspectRow}),
		},
		{
			Name: "RestIsTTL", Flaw: "shows the TTL of a lock for what remains of it",
			KilledBy: []Kill{{"after/shows", "although its holder may believe in it for"}},
			design:   inside(flaw{try: tryAndNote, status: noted(func(n *entry, st *distlock.Status) { st.Remaining = n.ttl })}),
		},
		{
			Name: "RestOfGrant", Flaw: "shows what remains of the grant, whatever has been renewed since",
			KilledBy: []Kill{{"after/shows", "although its holder may believe in it for"}},
			design: inside(flaw{try: tryAndNote, status: noted(func(n *entry, st *distlock.Status) {
				st.Remaining = max(time.Until(n.expires), time.Nanosecond)
			})}),
		},
		{
			Name: "AcquiredIsRenewed", Flaw: "shows the time of the last renewal for that of the grant",
			KilledBy: []Kill{{"after/shows", "was told that it was acquired at"}},
			design: inside(flaw{try: tryAndNote, status: noted(func(n *entry, st *distlock.Status) {
				st.AcquiredAt = time.Now().Add(st.Remaining - n.ttl)
			})}),
		},
		{
			Name: "AcquiredIsNow", Flaw: "shows the time of the first look at any name for that of each grant",
			KilledBy: []Kill{{"after/shows", "by AcquiredAt of Inspect"}},
			design: inside(flaw{status: func(e *env, st *distlock.Status) {
				e.with("first look", func(n *entry) {
					if n.expires.IsZero() {
						n.expires = time.Now()
					}
					if st.Held {
						st.AcquiredAt = n.expires
					}
				})
			}}),
		},
	}
}

// waiterMutants take the holder for a waiter, or a waiter for the holder.
func waiterMutants() []Mutant {
	return []Mutant{
		{
			Name: "CountsHolder", Flaw: "counts the holder among those who wait",
			KilledBy: []Kill{{"after/shows", "clients wait for"}},
			design: inside(flaw{status: heldStatus(func(st *distlock.Status) {
				st.Waiters++
			})}),
		},
		{
			Name: "CountsTwo", Flaw: "counts one waiter at the most",
			KilledBy: []Kill{{"after/shows", "clients wait for"}},
			design: inside(flaw{status: heldStatus(func(st *distlock.Status) {
				st.Waiters = min(st.Waiters, 1)
			})}),
		},
		{
			Name: "LatestToken", Flaw: "shows the token that the first waiter will have for the holder's",
			KilledBy: []Kill{{"after/shows", "was told that its token is"}},
			design: inside(flaw{status: heldStatus(func(st *distlock.Status) {
				if st.Waiters > 0 {
					st.Token++
				}
			})}),
		},
	}
}

// lookMutants look at another thing than the name in the store, or change it.
func lookMutants() []Mutant {
	return []Mutant{
		{
			Name: "FreeIfUnknown", Flaw: "answers that nobody holds a name, and that nothing is held, when the store cannot be reached",
			KilledBy: []Kill{{"after/unanswered", "nobody holds the name"}},
			design:   outside(flaw{inspect: inspectHoping, list: listHoping}),
		},
		{
			Name: "LookProlongs", Flaw: "prolongs the lease that it looks at",
			KilledBy: []Kill{{"inspect/free", "had to be told that nobody holds it"}},
			design:   inside(flaw{try: tryAndNote, inspect: inspectAndRenew}),
		},
		{
			Name: "LooksTwice", Flaw: "reads the text of the holder with one request, and the token with a second",
			Seen:     "a key with the text beside that with the token",
			KilledBy: []Kill{{"pair/shown", "both have to be read in one step"}},
			design: outside(flaw{inspect: func(ctx context.Context, d *flawed, name string) (distlock.Status, error) {
				first, err := d.look(ctx, name)
				if err != nil {
					return first, err
				}
				st, err := d.look(ctx, name)
				if first.Held && st.Held {
					st.Holder = first.Holder
				}
				return st, err
			}}),
		},
		{
			Name: "ToldInTwo", Flaw: "tells in a refusal the text of the holder as of one request, and the token as of a second",
			KilledBy: []Kill{{"pair/shown", "both have to be read in one step"}},
			design: outside(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
				g, err := c.inner.Try(ctx)
				held, refused := errors.AsType[*distlock.HeldError](err)
				if !refused {
					return g, err
				}
				first, failed := c.driver.inner.Inspect(ctx, c.asked.Name)
				st, again := c.driver.inner.Inspect(ctx, c.asked.Name)
				if failed != nil || again != nil || !first.Held || !st.Held {
					return g, err
				}
				return g, &distlock.HeldError{Remaining: held.Remaining, Holder: first.Holder, Token: st.Token}
			}}),
		},
		{
			Name: "OwnOnly", Flaw: "shows what its own client holds, and nothing else",
			KilledBy: []Kill{{"after/shows", "told that nobody holds it"}},
			design:   inside(flaw{try: tryAndNote, inspect: inspectOwn}),
		},
	}
}

func textMutants() []Mutant {
	text := func(name, flawed string, f func(string) string) Mutant {
		return Mutant{
			Name: name, Flaw: flawed, KilledBy: []Kill{{"inspect/holder-text", "the holder is"}},
			design: inside(flaw{status: heldStatus(func(st *distlock.Status) { st.Holder = f(st.Holder) })}),
		}
	}
	return []Mutant{
		text("HolderAtNUL", "cuts the holder text at the first NUL", func(s string) string {
			s, _, _ = strings.Cut(s, "\x00")
			return s
		}),
		text("HolderTrimmed", "trims white space from the holder text", strings.TrimSpace),
		text("HolderEscaped", "shows the holder text with its quotes and line breaks escaped", func(s string) string {
			return strings.Trim(fmt.Sprintf("%q", s), `"`)
		}),
		text("HolderInRunes", "keeps no more than 128 bytes of the holder text", func(s string) string {
			return strings.ToValidUTF8(s[:min(len(s), 128)], "")
		}),
		text("HolderInBMP", "cannot keep characters beyond U+FFFF in the holder text", func(s string) string {
			return strings.Map(func(r rune) rune {
				if r > 0xffff {
					return '?'
				}
				return r
			}, s)
		}),
		text("HolderField", "keeps the first word of the holder text", func(s string) string {
			s, _, _ = strings.Cut(s, " ")
			return s
		}),
		{
			Name: "HolderJoint", Flaw: "keeps 600 bytes of a name and its holder text together",
			KilledBy: []Kill{{"after/shows", "xxx"}},
			design: inside(flaw{request: func(_ *env, r *driver.Request) {
				r.Holder = r.Holder[:min(len(r.Holder), 600-len(r.Name))]
			}}),
		},
	}
}

// tryAndNote keeps what a row of the name would have.
func tryAndNote(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	c.noteGrant(err)
	return g, err
}

// noteGrant notes the grant that a Try has had, if err is nil.
func (c *claim) noteGrant(err error) {
	if err == nil {
		c.driver.with(c.asked.Name, func(e *entry) {
			e.owner, e.holder, e.client, e.ended = c.asked.Owner, c.asked.Holder, c.driver.env, false
			e.ttl, e.expires = c.asked.TTL, time.Now().Add(c.asked.TTL)
		})
	}
}

func releaseAndNote(ctx context.Context, c *claim) error {
	err := c.inner.Release(ctx)
	c.driver.with(c.asked.Name, func(e *entry) {
		if e.owner == c.asked.Owner {
			e.ended = true
		}
	})
	return err
}

// noted changes the status of a held name by what was noted of it.
func noted(f func(n *entry, st *distlock.Status)) func(e *env, st *distlock.Status) {
	return func(e *env, st *distlock.Status) {
		if st.Held {
			e.with(st.Name, func(n *entry) { f(n, st) })
		}
	}
}

func heldStatus(f func(st *distlock.Status)) func(e *env, st *distlock.Status) {
	return func(_ *env, st *distlock.Status) {
		if st.Held {
			f(st)
		}
	}
}

func inspectRow(ctx context.Context, d *flawed, name string) (distlock.Status, error) {
	st, err := d.look(ctx, name)
	d.with(name, func(e *entry) {
		if !st.Held && !e.ended && e.owner != "" {
			st.Held, st.Holder = true, e.holder
		}
	})
	return st, err
}

func inspectHoping(ctx context.Context, d *flawed, name string) (distlock.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	st, err := d.look(ctx, name)
	if err != nil {
		return distlock.Status{Name: name}, nil
	}
	return st, nil
}

func listHoping(ctx context.Context, d *flawed, prefix string) ([]distlock.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	all, err := d.inner.List(ctx, prefix)
	if err != nil {
		return nil, nil
	}
	return all, nil
}

func inspectAndRenew(ctx context.Context, d *flawed, name string) (distlock.Status, error) {
	var owner string
	var ttl time.Duration
	d.with(name, func(e *entry) { owner, ttl = e.owner, e.ttl })
	if owner != "" {
		_, err := single{d.mem.Claim(driver.Request{Name: name, Owner: owner, TTL: ttl}), d.mem}.Renew(ctx, ttl)
		if err != nil && !errors.Is(err, distlock.ErrLost) {
			return distlock.Status{}, err
		}
	}
	return d.look(ctx, name)
}

func inspectOwn(ctx context.Context, d *flawed, name string) (distlock.Status, error) {
	st, err := d.look(ctx, name)
	d.with(name, func(e *entry) {
		if e.client != d.env {
			st = distlock.Status{Name: name}
		}
	})
	return st, err
}
