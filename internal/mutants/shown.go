package mutants

import (
	"context"
	"slices"
	"strings"
	"unicode"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// shownMutants do not have names as they are, or do not show them once.
func shownMutants() []Mutant {
	return []Mutant{
		{
			Name: "DropsPrivate", Flaw: "drops characters for private use from names",
			KilledBy: []Kill{{"names/scripts", "the two names are one lock"}},
			design: namesFlaw(func(s string) string {
				return strings.Map(func(r rune) rune {
					if unicode.Is(unicode.Co, r) {
						return -1
					}
					return r
				}, s)
			}),
		},
		{
			Name: "ListsShort", Flaw: "lists no name of more than 255 bytes",
			KilledBy: []Kill{{"list/literal-prefix", "which is held"}},
			design: inside(flaw{list: func(ctx context.Context, d *flawed, prefix string) ([]distlock.Status, error) {
				all, err := d.inner.List(ctx, prefix)
				return slices.DeleteFunc(all, func(st distlock.Status) bool { return len(st.Name) > 255 }), err
			}}),
		},
		{
			Name: "ForgetsText", Flaw: "writes its entry without the text when it finds that it has the name already",
			KilledBy: []Kill{{"pair/reply-lost", "Inspect shows the text \"\""}},
			design: inside(flaw{try: forgetfulTry, status: func(e *env, st *distlock.Status) {
				if st.Held {
					e.with(st.Name, func(n *entry) { st.Holder = n.holder })
				}
			}}),
		},
		{
			Name: "ListsPerWaiter", Flaw: "lists a name once for its holder, and once for each that waits",
			Seen:     "a join of the holders with the queue",
			KilledBy: []Kill{{"after/shows", "returned it 3 times"}},
			design: inside(flaw{list: func(ctx context.Context, d *flawed, prefix string) (rows []distlock.Status, err error) {
				all, err := d.inner.List(ctx, prefix)
				for _, st := range all {
					for range 1 + st.Waiters {
						rows = append(rows, st)
					}
				}
				return rows, err
			}}),
		},
	}
}

func forgetfulTry(ctx context.Context, c *claim) (driver.Grant, error) {
	before, _ := c.driver.mem.Inspect(ctx, c.asked.Name)
	g, err := c.inner.Try(ctx)
	if err == nil {
		c.driver.with(c.asked.Name, func(e *entry) {
			e.holder = c.asked.Holder
			if before.Held {
				e.holder = ""
			}
		})
	}
	return g, err
}

// nobodyMutants do not see that nobody holds a name.
func nobodyMutants() []Mutant {
	return []Mutant{
		{
			Name: "InspectsLonger", Flaw: "shows for a name that is free the holder of a longer one that begins with it",
			Seen:     "a range read, where a single key was meant",
			KilledBy: []Kill{{"inspect/free", "was never held"}},
			design:   inside(flaw{inspect: inspectLonger}),
		},
		{
			Name: "HeldIfWaited", Flaw: "shows a name as held for which others wait, also if nobody holds it at the moment",
			KilledBy: []Kill{{"fair/expiry-does-not-barge", "has not come yet"}},
			design:   inside(flaw{status: func(_ *env, st *distlock.Status) { st.Held = st.Held || st.Waiters > 0 }}),
		},
		{
			Name: "WaitersStay", Flaw: "counts those who have waited for as long as nobody holds the name",
			KilledBy: []Kill{{"after/shows", "nobody holds"}},
			design: inside(flaw{status: func(e *env, st *distlock.Status) {
				e.with(st.Name, func(n *entry) {
					if st.Held {
						n.faults = max(n.faults, st.Waiters)
					} else {
						st.Waiters = n.faults
					}
				})
			}}),
		},
	}
}

func inspectLonger(ctx context.Context, d *flawed, name string) (distlock.Status, error) {
	st, err := d.look(ctx, name)
	if err != nil || st.Held {
		return st, err
	}
	below, err := d.inner.List(ctx, name)
	if len(below) > 0 {
		st = below[0]
		st.Name = name
	}
	return st, err
}
