package mutants

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
)

// listMutants list other names than the held ones with the prefix.
func listMutants() []Mutant {
	list := func(name, flawed, seen, says string, f func(ctx context.Context, d *flawed, prefix string) ([]distlock.Status, error)) Mutant {
		return Mutant{Name: name, Flaw: flawed, Seen: seen, KilledBy: []Kill{{"list/literal-prefix", says}},
			design: inside(flaw{list: f})}
	}
	const wrong = "does not begin with it"
	mutants := []Mutant{
		list("ListLike", "lists what matches the prefix with % and _ as wildcards", "LIKE, without escaping", wrong, listMatching(like)),
		list("ListGlob", "lists what matches the prefix as a pattern with *, ? and [", "SCAN MATCH, without escaping", "List(", listMatching(glob)),
		list("ListFolded", "lists names whatever the case of their prefix", "a collation", wrong, listMatching(func(prefix string) func(string) bool {
			return func(name string) bool { return strings.HasPrefix(strings.ToLower(name), strings.ToLower(prefix)) }
		})),
		list("ListTrimmed", "lists names by the prefix without the white space at its ends", "", wrong, listMatching(func(prefix string) func(string) bool {
			return func(name string) bool { return strings.HasPrefix(name, strings.TrimSpace(prefix)) }
		})),
		list("ListBelow", "lists names below the prefix, and not the one that is equal to it", "paths", "it lacks", listMatching(func(prefix string) func(string) bool {
			return func(name string) bool { return name != prefix && strings.HasPrefix(name, prefix) }
		})),
		list("ListByCase", "lists names sorted without regard to case", "ORDER BY with a collation", "not sorted by their bytes", listSorted),
		list("ListTwice", "lists a name twice now and then", "SCAN, which may return a key twice", "twice", listTwice),
	}
	return append(mutants, []Mutant{
		{
			Name: "ListWithExpired", Flaw: "lists names whose holder has died, and whose lease has ended",
			KilledBy: []Kill{{"inspect/free", "but List, called by"}},
			design:   inside(flaw{try: tryAndNote, release: releaseAndNote, list: listRows}),
		},
		{
			Name: "ListPage", Flaw: "lists the first thousand names only",
			KilledBy: []Kill{{"list/many", " of 2100 names"}},
			design:   inside(flaw{list: listPage}),
		},
		{
			Name: "ListByOffset", Flaw: "reads its list page by page, each from a number on, while names come and go",
			Seen:     "OFFSET",
			KilledBy: []Kill{{"list/many", "List("}},
			design:   outside(flaw{list: listByOffset}),
		},
		{
			Name: "ListPartial", Flaw: "lists the names of its first page, without an error, if the connection breaks under the second",
			Seen:     "rows.Next without rows.Err",
			KilledBy: []Kill{{"list/many", " of 2100 names"}},
			design:   outside(flaw{list: listPartial}),
		},
	}...)
}

// listMatching lists what a pattern made of the prefix matches.
func listMatching(pattern func(prefix string) func(name string) bool) func(context.Context, *flawed, string) ([]distlock.Status, error) {
	return func(ctx context.Context, d *flawed, prefix string) ([]distlock.Status, error) {
		all, err := d.inner.List(ctx, "")
		matches := pattern(prefix)
		return slices.DeleteFunc(all, func(st distlock.Status) bool { return !matches(st.Name) }), err
	}
}

func like(prefix string) func(string) bool {
	quoted := regexp.QuoteMeta(prefix)
	re := regexp.MustCompile("(?s)^" + strings.NewReplacer("%", ".*", "_", ".").Replace(quoted))
	return re.MatchString
}

func glob(prefix string) func(string) bool {
	return func(name string) bool {
		for i := range len(name) + 1 {
			if ok, err := path.Match(prefix, name[:i]); ok && err == nil {
				return true
			}
		}
		return false
	}
}

func listSorted(ctx context.Context, d *flawed, prefix string) ([]distlock.Status, error) {
	all, err := d.inner.List(ctx, prefix)
	slices.SortFunc(all, func(a, b distlock.Status) int {
		return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
	})
	return all, err
}

func listTwice(ctx context.Context, d *flawed, prefix string) ([]distlock.Status, error) {
	all, err := d.inner.List(ctx, prefix)
	if n := len(all); n > 10 {
		all = append(all, all[n-1])
	}
	return all, err
}

// listRows lists every row that was not marked as free.
func listRows(ctx context.Context, d *flawed, prefix string) ([]distlock.Status, error) {
	all, err := d.inner.List(ctx, prefix)
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, e := range d.entries {
		shown := slices.ContainsFunc(all, func(st distlock.Status) bool { return st.Name == name })
		if !e.ended && !shown && strings.HasPrefix(name, prefix) {
			all = append(all, distlock.Status{Name: name, Held: true, Holder: e.holder})
		}
	}
	slices.SortFunc(all, func(a, b distlock.Status) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

func listPage(ctx context.Context, d *flawed, prefix string) ([]distlock.Status, error) {
	all, err := d.inner.List(ctx, prefix)
	return all[:min(len(all), 1000)], err
}

// listByOffset sorts by when names were acquired, as rows lie in a table, and reads
// them in pages of 100.
func listByOffset(ctx context.Context, d *flawed, prefix string) ([]distlock.Status, error) {
	var found []distlock.Status
	for offset := 0; ; offset += 100 {
		page, err := d.inner.List(ctx, prefix)
		if err != nil || offset >= len(page) {
			return found, err
		}
		found = append(found, page[offset:min(offset+100, len(page))]...)
		time.Sleep(time.Millisecond)
	}
}

// listPartial reads two pages, and takes a second that it does not get for the end.
func listPartial(ctx context.Context, d *flawed, prefix string) ([]distlock.Status, error) {
	const page = 1000
	found, err := d.inner.List(ctx, prefix)
	if err != nil || len(found) <= page {
		return found, err
	}
	found = found[:page]
	rest, _ := d.inner.List(ctx, prefix) // its error is forgotten
	for _, st := range rest {
		if st.Name > found[page-1].Name {
			found = append(found, st)
		}
	}
	return found, nil
}
