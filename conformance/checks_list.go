package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
)

func listChecks() []Check {
	return []Check{
		{ID: "list/literal-prefix", Clause: "O1", Mandatory: true, Run: listLiteral,
			Rule: "List returns the held names that begin with the prefix, byte by byte, sorted; wildcards and case mean nothing; they and Inspect return names exactly as they were passed to Lock"},
		{ID: "list/many", Clause: "O1", Mandatory: true, Heavy: true, Run: listMany,
			Rule: "List returns all that are held, thousands as well, while other names come and go; all or an error, if an answer is lost"},
		{ID: "list/namespaces", Clause: "O1", Needs: []Cap{capNamespaces}, Run: listNamespaces,
			Rule: "List shows the names of its own namespace only"},
	}
}

// listed are names that a pattern, a collation or an encoding takes one for the other.
var listedNames = []string{
	"a", "aa", "ab", "Ab", "AB", "aXb", "aXXb", "a%b", "a_b", "a*b", "a?b", "a[b]", "a[bc", "a]b", "a^b", "a{b}", "a{b,c}", "a\\b", "a\\%b", "a\\\\b",
	"a'b", "a''b", "a\"b", "a`b", "a\x00b", "a\nb", "a/b", "a/b/c", "a/", "/a", "a//b", "a.b", "a+b", "a|b", "a$b", "(a)", "a b", "a ", " a", "a%2Fb", "a%2fb",
	"a:b", "a#b", "a;b", "a-b", "á", "a\u0301", "ß", "ss", "ÿ", "Ÿ", "😀", "😁", "日本", "日", "\uffff", "z", "zz", "%", "_", "*", "\\",
	strings.Repeat("w", 200), strings.Repeat("w", 300), strings.Repeat("w", 460),
}

// listedPrefixes are besides those names themselves.
var listedPrefixes = []string{"", "A", "a%", "a_", "a*", "a[", "[a-z]", "[^z]", "?", ".*", "a.", "^a", "a\\*", "{a}", "a/b/c/d", "b", "Z", "á%", "%a", "a\x00", "日本語", "zzz"}

func listLiteral(c *C) {
	a, b := c.open("A"), c.open("B")
	b.list(c.Name("none")) // skips the check if not supported
	held := make(map[string]*lease)
	var names []string
	for _, s := range listedNames {
		names = append(names, c.Name(s))
	}
	for _, set := range []func(string) []string{caseAccent, spaces, paths, escapes, internals, long} {
		names = append(names, set(c.Name(""))...)
	}
	names = slices.DeleteFunc(names, func(s string) bool { return !strings.HasPrefix(s, c.Name("")) })
	slices.Sort(names)
	names = slices.Compact(names)
	for i, h := range c.holdAll(names, a) {
		held[names[i]] = h
	}
	c.share(len(listedNames)+len(listedPrefixes), func(i int) {
		prefix := c.Name(append(listedNames[:len(listedNames):len(listedNames)], listedPrefixes...)[i])
		var want []string
		for _, name := range names {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		c.mustList(b.list(prefix), prefix, want)
	})
	// An empty prefix shows what others hold as well.
	var ours []distlock.Status
	for _, st := range b.list("") {
		if strings.HasPrefix(st.Name, c.Name("")) {
			ours = append(ours, st)
		}
	}
	c.mustList(ours, "", names)
	for _, st := range b.list(c.Name("")) {
		if h := held[st.Name]; !st.Held || st.Token != h.Token() {
			c.Failf("A holds %q with token %d, but List says %+v", st.Name, h.Token(), st)
		}
	}
	c.share(len(names), func(i int) {
		if st := b.look(names[i]); !st.Held || st.Token != held[names[i]].Token() {
			c.breach("N1", "A holds %q with token %d, but Inspect says %+v", names[i], held[names[i]].Token(), st)
		}
		held[names[i]].free()
	})
	c.mustList(b.list(c.Name("")), c.Name(""), nil)
}

// mustList compares an answer of List with the names that it had to have.
func (c *C) mustList(got []distlock.Status, prefix string, want []string) {
	var names []string
	for _, st := range got {
		names = append(names, st.Name)
	}
	if slices.Equal(names, want) {
		return
	}
	if missing, extra := without(want, names), without(names, want); len(missing) > 0 && len(missing) == len(extra) {
		c.breach("N1", "List(%q) returned %q, which nobody holds, and not %q, which is held: does it show the name in another way?", prefix, extra[0], missing[0])
	}
	for i, name := range names {
		switch {
		case !strings.HasPrefix(name, prefix):
			c.Failf("List(%q) returned %q, which does not begin with it", prefix, name)
		case !slices.Contains(want, name):
			c.Failf("List(%q) returned %q, which is not held", prefix, name)
		case slices.Contains(names[:i], name):
			c.Failf("List(%q) returned %q twice", prefix, name)
		}
	}
	for _, name := range want {
		if !slices.Contains(names, name) {
			c.Failf("List(%q) returned %d of %d names; among others it lacks %q, which is held", prefix, len(names), len(want), name)
		}
	}
	at := 0
	for at < len(want) && names[at] == want[at] {
		at++
	}
	c.Failf("List(%q) returned the right names, but not sorted by their bytes: number %d is %q, and had to be %q", prefix, at+1, names[at], want[at])
}

func listMany(c *C) {
	n := 1050
	if c.Virtual() {
		n = 2100
	}
	a, b, busy := c.open("A"), c.openPhased("B"), c.open("C")
	b.list(c.Name("none")) // skips the check if not supported
	var names []string
	for i := range n {
		names = append(names, c.Name(fmt.Sprintf("m%05d", i*7919%n)))
	}
	held := c.takeAll(a, names, "which is fresh", distlock.TTL(c.long()), distlock.Holder("many"))
	slices.Sort(names)
	slices.SortFunc(held, func(x, y *lease) int { return strings.Compare(x.Name(), y.Name()) })

	stop, stopped := make(chan struct{}), make(chan struct{})
	c.Go(func() { // names before, among and after them
		defer close(stopped)
		for i := 0; !c.within(stop, 3*time.Millisecond); i++ {
			h := busy.mustTry(c.Name([]string{"a", "m00500x", "z"}[i%3]), "which C alone takes, and has unlocked", distlock.TTL(c.long()))
			c.within(stop, 7*time.Millisecond)
			h.free()
		}
	})
	for range 3 {
		var got []distlock.Status
		for _, st := range b.list(c.Name("")) {
			if i := len(got); i < n && st.Name == names[i] && (!st.Held || st.Token != held[i].Token() || st.Holder != "many") {
				c.Failf("A holds %q as \"many\" with token %d, but List says %+v", st.Name, held[i].Token(), st)
			}
			if st.Holder == "many" { // C has another text
				got = append(got, st)
			}
		}
		c.mustList(got, c.Name(""), names)
	}
	close(stop)
	if !c.within(stopped, patience+c.Slack()) {
		c.Inconclusivef("C did not come to its end")
	}
	c.listCut(names)
	for _, left := range []int{1000, 512, 500, 256, 128, 100, 64} { // a last page may be full
		c.freeAll(held[:len(held)-left])
		held, names = held[len(held)-left:], names[len(names)-left:]
		c.mustList(b.list(c.Name("m")), c.Name("m"), names)
	}
	c.freeAll(held)
	c.mustList(b.list(c.Name("")), c.Name(""), nil)
}

// listCut demands that a List of which an answer is lost returns all the same, or an error: not those that came before.
func (c *C) listCut(names []string) {
	if _, ok := can[Proxy](c, capProxy); !ok {
		return
	}
	p := c.openVia("D")
	for k := range fateDepth {
		p.link.CutReply(k + 1)
		ctx, cancel := context.WithTimeout(c.ctx, 2*patience+c.Slack())
		got, err := p.listed(ctx, c.Name(""))
		cancel()
		if err == nil {
			c.mustList(got, c.Name(""), names)
		}
		p.link.Heal()
	}
}

func listNamespaces(c *C) {
	one, other := c.openIn("A", "n"), c.openIn("B", "nn")
	one.list("none") // skips the check if not supported
	ttl := distlock.TTL(c.long())
	x, y := one.mustTry("x", "in a namespace of its own", ttl), one.mustTry("n/x", "in a namespace of its own", ttl)
	z := other.mustTry("z", "in a namespace of its own", ttl)
	c.mustList(one.list(""), "", []string{"n/x", "x"})
	c.mustList(other.list(""), "", []string{"z"})
	c.mustList(one.list("z"), "z", nil)
	other.mustShowFree("x", "is held in another namespace only")
	for _, h := range []*lease{x, y, z} {
		h.free()
	}
}
