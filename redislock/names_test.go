package redislock

import (
	"errors"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/redislock/internal/names"
)

// oddNames are legal, and easy to mix up.
var oddNames = []string{
	"x", "X", " x", "x ", "x\t", "x\x00", "x\u00a0", "x\u0301", "x}", "{x", "{x}", "{}", "x%", "x%7D", "x%257D", "%", "%%",
	"x:token", "x}:token", "x:queue", "x:waiters", "x:wake:y", "*", "x*", "?", "[x]", `\x`, `x\*`, "é", "\u65e5\u672c", "a/b", "a//b",
	strings.Repeat("{", distlock.MaxName), strings.Repeat("n", distlock.MaxName), strings.Repeat("n", distlock.MaxName-1) + "m",
}

// What belongs to a name is on one server of a cluster, and only the entry is taken for one.
func TestKeysOfAName(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"distlock:", "d", "p%7D*["} {
		for _, name := range oddNames {
			k := keyOf(prefix, name)
			if back, ok := names.NameOf(prefix, k.entry()); !ok || back != name || hashTag(k.entry()) == "" {
				t.Errorf("%q is stored as %q, which is read as %q, %v", name, k, back, ok)
			}
			for _, other := range []string{k.token(), k.queue(), k.waiters()} {
				if back, ok := names.NameOf(prefix, other); ok || hashTag(other) != hashTag(k.entry()) {
					t.Errorf("%q, beside the entry %q, is read as the entry of %q", other, k.entry(), back)
				}
			}
		}
	}
}

// hashTag is Redis' rule: what stands between the first { and the next }.
func hashTag(key string) string {
	_, tail, ok := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(tail, "}")
	if !ok || !closed {
		return ""
	}
	return tag
}

func TestForeignKeysAreNoNames(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"", "p", "p{", "p{}", "p{a", "pa}", "p{a}x", "p{a b}", "p{%}", "p{%4}", "p{%zz}", "p{%7d}", "p{%41}", "p{a}}", "q{a}", "P{a}",
	} {
		if name, ok := names.NameOf("p", key); ok {
			t.Errorf("%q is read as the entry of %q", key, name)
		}
	}
}

func TestPatternFindsWhatStartsWithThePrefix(t *testing.T) {
	t.Parallel()
	for _, start := range append([]string{""}, oddNames...) {
		for _, name := range oddNames {
			// path.Match has the rules of SCAN for what a pattern of ours contains,
			// but for the slash: it does not match that with *.
			key := strings.ReplaceAll(string(keyOf("p*", name)), "/", "|")
			got, err := path.Match(strings.ReplaceAll(names.Pattern("p*", start), "/", "|"), key)
			if err != nil || got != strings.HasPrefix(name, start) {
				t.Errorf("the pattern for %q matches %q: %v, %v", start, name, got, err)
			}
			if _, err := path.Match(names.Pattern("p*", start), key+":token"); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "a:b/c-d*", "%", strings.Repeat("p", names.MaxPrefix)} {
		testkit.Should(t, names.CheckPrefix(good))
	}
	for _, bad := range []string{"{", "a}b", "a b", "a\n", "é", strings.Repeat("p", names.MaxPrefix+1)} {
		if err := names.CheckPrefix(bad); !errors.Is(err, distlock.ErrInvalid) {
			t.Errorf("the prefix %q: %v, want ErrInvalid", bad, err)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, name := range oddNames {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || !utf8.ValidString(name) {
			return
		}
		if back, ok := names.NameOf("p:", string(keyOf("p:", name))); !ok || back != name {
			t.Errorf("%q is read back as %q, %v", name, back, ok)
		}
	})
}
