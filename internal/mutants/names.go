package mutants

import (
	"context"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// namesFlaw is the design of a driver that stores names in its own way.
func namesFlaw(encode func(string) string) design { return design{driver: names, encode: encode} }

func names(e *env) driver.Driver { return e.inside(flaw{}) }

func nameMutants() []Mutant {
	const (
		held = "the two names are one lock"
		why  = "names of different meaning are told apart in them"
	)
	all := []string{"names/*", "batch/*", "list/*", "break/*", "inspect/*", "isolate/*", "close/frees-held"}
	return []Mutant{
		{
			Name: "FoldCase", Flaw: "does not tell upper from lower case",
			Seen:     "the default collations of MySQL, measured",
			KilledBy: []Kill{{"names/case-accent", held}}, MayTrip: all, Why: why,
			design: namesFlaw(strings.ToLower),
		},
		{
			Name: "TrimSpace", Flaw: "ignores white space at the end of a name",
			Seen:     "the PAD SPACE collations of SQL, measured",
			KilledBy: []Kill{{"names/spaces", held}}, MayTrip: all, Why: why,
			design: namesFlaw(strings.TrimSpace),
		},
		{
			Name: "Truncate", Flaw: "keeps 255 bytes of a name",
			Seen:     "VARCHAR(255) without strict mode, measured",
			KilledBy: []Kill{{"names/long", held}}, MayTrip: all, Why: why,
			design: namesFlaw(func(s string) string {
				s = s[:min(len(s), 255)]
				for !utf8.ValidString(s) {
					s = s[:len(s)-1]
				}
				return s
			}),
		},
		{
			Name: "Normalize", Flaw: "does not tell the two Unicode spellings of one letter apart",
			Seen:     "file systems and collations that compose",
			KilledBy: []Kill{{"names/case-accent", held}}, MayTrip: all, Why: why,
			design: namesFlaw(strings.NewReplacer("o\u0308", "\u00f6").Replace),
		},
		{
			Name: "LossyEscape", Flaw: "replaces what its keys cannot have, so that two names share one key",
			Seen:     "path elements with slashes turned into underscores",
			KilledBy: []Kill{{"names/escape", held}, {"names/bytes", held}}, MayTrip: all, Why: why,
			design: namesFlaw(strings.NewReplacer("/", "_").Replace),
		},
		{
			Name: "NamesAsNumbers", Flaw: "takes names that read as the same number for one",
			Seen:     "columns and languages without types",
			KilledBy: []Kill{{"names/numbers", held}}, MayTrip: all, Why: why,
			design: namesFlaw(func(s string) string {
				if f, err := strconv.ParseFloat(s, 64); err == nil {
					return strconv.FormatFloat(f, 'g', -1, 64)
				}
				return s
			}),
		},
		{
			Name: "DropsBraces", Flaw: "does not see the braces around a part of a name",
			Seen:     "hash tags of a cluster, taken for syntax",
			KilledBy: []Kill{{"names/escape", held}}, MayTrip: all, Why: why,
			design: namesFlaw(strings.NewReplacer("{", "", "}", "").Replace),
		},
		{
			Name: "PrefixClash", Flaw: "takes the entries of \"p/q\" for waiters of \"p\"",
			Seen:     "etcd's concurrency.Mutex, which lists its keys by prefix, measured",
			KilledBy: []Kill{{"names/path", "is held"}}, MayTrip: all, Why: why,
			design: inside(flaw{try: tryUnlessBelow}),
		},
	}
}

func tryUnlessBelow(ctx context.Context, c *claim) (driver.Grant, error) {
	below, err := c.driver.mem.List(ctx, c.asked.Name+"/")
	switch {
	case err != nil:
		return driver.Grant{}, err
	case len(below) > 0:
		return driver.Grant{}, &distlock.HeldError{Remaining: below[0].Remaining}
	}
	return c.inner.Try(ctx)
}
