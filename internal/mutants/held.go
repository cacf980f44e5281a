package mutants

import (
	"context"
	"errors"
	"strings"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// refusalMutants say something wrong with a refusal.
func refusalMutants() []Mutant {
	return []Mutant{
		{
			Name: "HeldByAsker", Flaw: "names the one that asks as the holder, in a refusal",
			KilledBy: []Kill{{"after/told", "told that the holder is"}},
			design:   refusing(func(c *claim, _ distlock.Status, held *driver.Held) { held.Holder = c.asked.Holder + "?" }),
		},
		{
			Name: "HeldByFirst", Flaw: "names in refusals the first holder that a name had, whoever has it now",
			Seen:     "a cache without an end",
			KilledBy: []Kill{{"after/told", "told that the holder is"}},
			design: refusing(func(c *claim, st distlock.Status, held *driver.Held) {
				c.driver.with(st.Name, func(e *entry) {
					if e.holder == "" {
						e.holder = st.Holder
					}
					held.Holder = e.holder
				})
			}),
		},
		{
			Name: "HeldCut", Flaw: "tells in a refusal the first 64 bytes of the holder text",
			Seen:     "a column, or a buffer for a message, of a fixed length",
			KilledBy: []Kill{{"inspect/holder-text", "told that the holder is"}},
			design: refusing(func(_ *claim, st distlock.Status, held *driver.Held) {
				held.Holder = strings.ToValidUTF8(st.Holder[:min(len(st.Holder), 64)], "")
			}),
		},
		{
			Name: "HeldByNext", Flaw: "tells in a refusal the token that the next holder will have",
			Seen:     "a counter that is read instead of the row",
			KilledBy: []Kill{{"after/told", "told that the holder's token is"}},
			design:   refusing(func(_ *claim, st distlock.Status, held *driver.Held) { held.Token = st.Token + 1 }),
		},
		{
			Name: "HeldForDays", Flaw: "says with a refusal that the name stays taken for as long as a lock may last",
			KilledBy: []Kill{{"after/told", "that can be"}},
			design:   refusing(func(_ *claim, _ distlock.Status, held *driver.Held) { held.Remaining = distlock.MaxTTL }),
		},
		{
			Name: "NeverWoken", Flaw: "declares notifications, and says to each waiter that it has none",
			KilledBy: []Kill{{"held/woken", "each refusal says NoWake"}},
			design:   refusing(func(_ *claim, _ distlock.Status, held *driver.Held) { held.NoWake = true }),
		},
	}
}

// refusing changes what refusals say. A try knows what is so in the store.
func refusing(change func(c *claim, st distlock.Status, held *driver.Held)) design {
	return inside(flaw{try: func(ctx context.Context, c *claim) (driver.Grant, error) {
		g, err := c.inner.Try(ctx)
		held, refused := errors.AsType[*distlock.HeldError](err)
		if !refused {
			return g, err
		}
		st, failed := c.driver.mem.Inspect(ctx, c.asked.Name)
		if failed != nil || !st.Held { // it has been freed meanwhile
			return g, err
		}
		told := driver.Held{HeldError: *held}
		change(c, st, &told)
		return g, &told
	}})
}
