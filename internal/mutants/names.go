package mutants

import (
	"context"
	"fmt"
	"hash/crc32"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/driver"
)

// namesFlaw is the design of a driver that stores names in its own way.
func namesFlaw(encode func(string) string) design { return design{driver: names, encode: encode} }

func names(e *env) driver.Driver { return e.inside(flaw{}) }

func nameMutants() []Mutant {
	spells := func(name, flaw, seen string, encode func(string) string, checks ...string) Mutant {
		m := Mutant{Name: name, Flaw: flaw, Seen: seen, design: namesFlaw(encode)}
		for _, check := range checks {
			m.KilledBy = append(m.KilledBy, Kill{check, oneLock})
		}
		return m
	}
	return []Mutant{
		spells("FoldCase", "does not tell upper from lower case", "the default collations of MySQL, measured", strings.ToLower, "names/case-accent"),
		spells("TrimSpace", "ignores white space at the end of a name", "the PAD SPACE collations of SQL, measured", strings.TrimSpace, "names/spaces"),
		spells("Truncate", "keeps 255 bytes of a name", "VARCHAR(255) without strict mode, measured", func(s string) string {
			s = s[:min(len(s), 255)]
			for !utf8.ValidString(s) {
				s = s[:len(s)-1]
			}
			return s
		}, "names/long"),
		spells("Normalize", "does not tell the two Unicode spellings of one letter apart", "file systems and collations that compose",
			strings.NewReplacer("o\u0308", "\u00f6").Replace, "names/case-accent"),
		spells("LossyEscape", "replaces what its keys cannot have, so that two names share one key", "path elements with slashes turned into underscores",
			strings.NewReplacer("/", "_").Replace, "names/escape", "names/bytes"),
		spells("NamesAsNumbers", "takes names that read as the same number for one", "columns and languages without types", func(s string) string {
			if f, err := strconv.ParseFloat(s, 64); err == nil {
				return strconv.FormatFloat(f, 'g', -1, 64)
			}
			return s
		}, "names/numbers"),
		spells("DropsBraces", "does not see the braces around a part of a name", "hash tags of a cluster, taken for syntax",
			strings.NewReplacer("{", "", "}", "").Replace, "names/escape"),
		spells("NewBeside", "keeps what it is about to write of a name under another, with .new behind it", "files that are written and then renamed", func(s string) string {
			return strings.TrimSuffix(s, ".new")
		}, "names/internals"),
		spells("CutsEscaped", "escapes names, and keeps 1,024 bytes of that", "", func(s string) string {
			s = url.PathEscape(s)
			return s[:min(len(s), 1024)]
		}, "names/long"),
		spells("CutsLetters", "keeps 64 letters of a name beyond ASCII", "", lettersCut, "names/long"),
		spells("HashesMiddle", "keeps the first 200 bytes of a long name, and a hash of 32 bits", "", func(s string) string {
			if len(s) <= 255 {
				return s
			}
			return fmt.Sprintf("%s#%08x", strings.ToValidUTF8(s[:200], "?"), crc32.ChecksumIEEE([]byte(s)))
		}, "names/hashes"),
		{
			Name: "PrefixClash", Flaw: "takes the entries of \"p/q\" for waiters of \"p\"",
			Seen:     "etcd's concurrency.Mutex, which lists its keys by prefix, measured",
			KilledBy: []Kill{{"names/path", "is held"}},
			design:   inside(flaw{try: tryUnlessBelow}),
		},
	}
}

func lettersCut(s string) string {
	r := []rune(s)
	if len(r) == len(s) {
		return s
	}
	return string(r[:min(len(r), 64)])
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

// spaceMutants do not keep apart what belongs to a name in one namespace and what in another.
func spaceMutants() []Mutant {
	sweeping := sweptRows(sweepByPrefix)
	sweeping.list, sweeping.inspect = listInSpace, inspectInSpace
	sweeping.breaks = func(ctx context.Context, d *flawed, name string, token int64) error {
		return breakNumbered(ctx, d, d.space()+name, token)
	}
	return []Mutant{
		{
			Name: "QueueOfAllSpaces", Flaw: "keeps one queue for a name in all namespaces, though not one lock",
			KilledBy: []Kill{{"names/joined", "which nobody holds in this name space"}},
			design: inSpaces(flaw{list: listInSpace, release: releaseFromQueue, try: tryUnlessLikeWaited(func(a, b string) bool {
				return bare(a) == bare(b)
			})}),
		},
		{
			Name: "SweepsByPrefixOfSpace", Flaw: "sweeps namespaces that begin with its own as well, and does not remember their tokens",
			Seen:     "a pattern like prefix%",
			KilledBy: []Kill{{"names/joined", "a Sweep in a name space"}},
			design:   inSpaces(sweeping),
		},
	}
}

func inSpaces(f flaw) design {
	d := inside(f)
	d.spaces = true
	return d
}

// inSpace stands between the namespace of a stored name and the name.
const inSpace = "\x00space\x00"

// bare takes the namespace off a stored name.
func bare(stored string) string {
	if _, name, ok := strings.Cut(stored, inSpace); ok {
		return name
	}
	return stored
}

// space is that of d; "" of a client outside of all.
func (d *flawed) space() string {
	if d.encode == nil {
		return ""
	}
	return d.encode("")
}

// inspectInSpace finds the row of a name by what it is stored as.
func inspectInSpace(ctx context.Context, d *flawed, name string) (distlock.Status, error) {
	st, err := d.inner.Inspect(ctx, d.space()+name)
	d.status(d.env, &st)
	st.Name = name
	return st, err
}

func listInSpace(ctx context.Context, d *flawed, prefix string) ([]distlock.Status, error) {
	all, err := d.inner.List(ctx, d.space()+prefix)
	for i := range all {
		if d.status != nil {
			d.status(d.env, &all[i])
		}
		all[i].Name = strings.TrimPrefix(all[i].Name, d.space())
	}
	return all, err
}

func sweepByPrefix(ctx context.Context, d *flawed, idle time.Duration) (removed int, err error) {
	prefix := strings.TrimSuffix(d.space(), inSpace)
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, e := range d.entries {
		st, err := d.row(ctx, name)
		if err != nil || !strings.HasPrefix(name, prefix) || st.Held || st.Waiters > 0 || time.Since(e.expires) < idle {
			continue
		}
		if strings.HasPrefix(name, d.space()) {
			d.floor = max(d.floor, e.token)
		}
		delete(d.entries, name)
		removed++
	}
	return removed, nil
}

// spaced is a harness with namespaces. A name is stored behind that of its own.
type spaced struct{ *harness }

var _ conformance.Namespaces = spaced{}

// ForCheck implements conformance.Scoped.
func (h spaced) ForCheck(*conformance.C) conformance.Harness {
	return spaced{&harness{design: h.design, world: h.newWorld()}}
}

// OpenIn implements conformance.Namespaces.
func (h spaced) OpenIn(ctx context.Context, c *conformance.C, namespace string) (distlock.Locker, error) {
	in := *h.harness
	in.encode = func(name string) string { return namespace + inSpace + name }
	l, _, err := in.OpenVia(ctx, c)
	return l, err
}
