package mutants

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
)

// operateMutants show operators something else than is so.
func operateMutants() []Mutant {
	const day = 24 * time.Hour
	listing := func(change func(st *distlock.Status), keep func(st distlock.Status) bool) design {
		return inside(flaw{list: func(ctx context.Context, d *flawed, prefix string) ([]distlock.Status, error) {
			all, err := d.inner.List(ctx, prefix)
			for i := range all {
				change(&all[i])
			}
			return slices.DeleteFunc(all, func(st distlock.Status) bool { return !keep(st) }), err
		}})
	}
	nothing, all := func(*distlock.Status) {}, func(distlock.Status) bool { return true }
	return []Mutant{
		{
			Name: "ListsADay", Flaw: "lists no lock whose lease runs for more than a day",
			Seen:     "a list that is read from a log of the day",
			KilledBy: []Kill{{"after/shows", "returned it 0 times"}},
			design:   listing(nothing, func(st distlock.Status) bool { return st.Remaining <= day }),
		},
		{
			Name: "ListsUnwaited", Flaw: "lists no name that somebody waits for",
			KilledBy: []Kill{{"after/shows", "returned it 0 times"}},
			design:   listing(nothing, func(st distlock.Status) bool { return st.Waiters == 0 }),
		},
		{
			Name: "ListCountsNobody", Flaw: "counts those who wait in Inspect, and not in List",
			KilledBy: []Kill{{"after/shows", "List says of it"}},
			design:   listing(func(st *distlock.Status) { st.Waiters = 0 }, all),
		},
		{
			Name: "ListWithoutRest", Flaw: "does not say in List how long leases run",
			KilledBy: []Kill{{"after/shows", "List does not say how long"}},
			design:   listing(func(st *distlock.Status) { st.Remaining = 0 }, all),
		},
	}
}

// likenessMutants break what has another name or token, or do not say what they can.
func likenessMutants() []Mutant {
	return []Mutant{
		{
			Name: "BreaksTrimmed", Flaw: "takes the space off a name that nobody holds, and breaks that",
			KilledBy: []Kill{{"break/only-that", "nobody holds this name"}},
			design: inside(flaw{breaks: func(ctx context.Context, d *flawed, name string, token int64) error {
				if err := d.inner.Break(ctx, name, token); err == nil {
					return nil
				}
				return d.inner.Break(ctx, strings.TrimSpace(name), token)
			}}),
		},
		{
			Name: "BreaksByHalf", Flaw: "compares the lower half of the token",
			Seen:     "a column or a script with numbers of 32 bits",
			KilledBy: []Kill{{"break/seen-token", "in the bit"}},
			design: inside(flaw{breaks: func(ctx context.Context, d *flawed, name string, token int64) error {
				st, err := d.inner.Inspect(ctx, name)
				if err == nil && st.Held && uint32(st.Token) == uint32(token) {
					token = st.Token
				}
				return d.inner.Break(ctx, name, token)
			}}),
		},
		{
			Name: "BreakAtTimes", Flaw: "says that it cannot break, when there is nothing to break",
			KilledBy: []Kill{{"meta/inspector-as-declared", "supported at some times"}},
			design: inside(flaw{breaks: func(ctx context.Context, d *flawed, name string, token int64) error {
				err := d.inner.Break(ctx, name, token)
				if errors.Is(err, distlock.ErrLost) {
					return distlock.ErrUnsupported
				}
				return err
			}}),
		},
	}
}

// idleMutants count wrongly how long nobody has held a name.
func idleMutants() []Mutant {
	sweeps := func(count func(time.Duration) time.Duration) design {
		f := rows()
		f.sweep = func(ctx context.Context, d *flawed, idle time.Duration) (int, error) {
			return ways{since: released}.sweep(ctx, d, count(idle))
		}
		return inside(f)
	}
	return []Mutant{
		{
			Name: "SweepsBySeconds", Flaw: "drops the fraction of a second from the idle time",
			KilledBy: []Kill{{"sweep/exact", "the first of A's names was free"}},
			design:   sweeps(func(idle time.Duration) time.Duration { return idle.Truncate(time.Second) }),
		},
		{
			Name: "SweepsADay", Flaw: "sweeps what was idle for a day, however much more was asked for",
			KilledBy: []Kill{{"sweep/exact", "the first of A's names was free"}},
			design:   sweeps(func(idle time.Duration) time.Duration { return min(idle, 24*time.Hour) }),
		},
		{
			Name: "SweepsTen", Flaw: "removes ten rows, and leaves the others to the next Sweep",
			Seen:     "DELETE with a LIMIT, which is sent once",
			KilledBy: []Kill{{"sweep/exact", "that it removed 10"}},
			design:   sweepingTen(),
		},
		{
			Name: "SweepsNothing", Flaw: "removes nothing, ever",
			KilledBy: []Kill{{"sweep/exact", "removed 0 and 0 of them"}},
			design:   sweeps(func(time.Duration) time.Duration { return 1 << 62 }),
		},
	}
}

func sweepingTen() design {
	f := rows()
	f.sweep = ways{since: released, most: 10}.sweep
	return inside(f)
}
