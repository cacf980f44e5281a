package conformance

import (
	"strings"
	"testing"
)

// Long names are shortened in all that a failure prints, also in errors of a store, and the rest stays.
func TestLongNamesAreShortened(t *testing.T) {
	var name string
	got := collect(t, check("long", func(c *C) {
		name = c.Name(strings.Repeat("n", 512-len(c.Name(""))))
		a := c.open("A")
		a.mustTry(name, "which is fresh").free()
		c.Logf("the key is lock:{%s}", name)
		c.Failf("A was refused %q: distlock: trylock %q: no such key lock:%s, and %q", name, name, name, "short")
	}))["long"]
	text := got.Text()
	if strings.Contains(text, strings.Repeat("n", 60)) || len(got.Timeline) == 0 {
		t.Errorf("a long name is printed in full: %s", text)
	}
	for _, want := range []string{`seen:     A was refused "conf-`, `n"…"nnnnnnnnnnnn" of 512 bytes: distlock: trylock "conf-`, `and "short"`, `the key is lock:{conf-`, `A TryLock("conf-`, `"nnnnnnnnnnnn" of 512 bytes) [`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in: %s", want, text)
		}
	}
}

// Of several failures, the one that is nearest to the cause is named.
func TestReadFirst(t *testing.T) {
	failed := func(ids ...string) (r Report) {
		for _, id := range ids {
			r.Results = append(r.Results, Result{ID: id, Status: Failed})
		}
		return r
	}
	for want, r := range map[string]Report{
		"core/exclusive":          failed("core/same-client-contends", "core/exclusive", "owner/twin-processes", "pair/try-free"),
		"owner/stale-unlock-free": failed("core/same-client-contends", "after/leaves", "owner/stale-unlock-free", "pair/unlock", "pair/close", "stress/counter"),
		"pair/try-free":           failed("core/same-client-contends", "after/leaves", "pair/try-free", "pair/lock-held"),
		"owner/first":             failed("after/leaves", "owner/first", "owner/second", "fault/late"),
		"wait/first":              failed("wait/first", "fault/late"),
		"":                        failed("pair/unlock"), // it stands alone, so nothing else is named
	} {
		if got := r.readFirst(); got != want {
			t.Errorf("read first: %q, want %q", got, want)
		}
		if named := strings.Contains(r.Summary(), "\n  read first: "+want); named != (want != "") {
			t.Errorf("the summary is %s", r.Summary())
		}
	}
}
