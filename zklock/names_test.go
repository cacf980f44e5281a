package zklock

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEncode(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"jobs":      "jobs",
		"jobs/a":    "jobs%2Fa",
		"/jobs":     "%2Fjobs",
		"Jobs":      "Jobs",
		"jobs ":     "jobs%20",
		".":         "%2E",
		"..":        "%2E.",
		"a.b-c_d:@": "a.b-c_d:@",
		"%2F":       "%252F",
		"\x00\x7f":  "%00%7F",
		"ö":         "%C3%B6",
		"\uf8ff":    "%EF%A3%BF", // the servers refuse private-use characters in a path
	} {
		if got := encode(name); got != want {
			t.Errorf("%q is encoded as %q, want %q", name, got, want)
		}
	}
	for _, element := range []string{"", "%", "%2", "%2f", "%zz", "%41", "a b", ".a", "ö"} {
		if name, ours := decode(element); ours {
			t.Errorf("%q is taken for the name %q", element, name)
		}
	}
}

func FuzzEncode(f *testing.F) {
	f.Add("jobs/a", "jobs%2Fa")
	f.Add(".", "%2E")
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" || !utf8.ValidString(a) || !utf8.ValidString(b) {
			return
		}
		ea, eb := encode(a), encode(b)
		if (ea == eb) != (a == b) {
			t.Errorf("%q and %q are encoded as %q and %q", a, b, ea, eb)
		}
		if back, ours := decode(ea); !ours || back != a {
			t.Errorf("%q comes back as %q, %v", a, back, ours)
		}
		if strings.ContainsAny(ea, "/ \x00") || ea[0] == '.' || len(ea) > 3*len(a) {
			t.Errorf("%q is encoded as %q", a, ea)
		}
	})
}

func TestQueueOf(t *testing.T) {
	t.Parallel()
	const owner = "0123456789abcdef0123456789abcdef"
	name := func(seq string) string { return claimPrefix + owner + "-" + seq }
	for _, tc := range []struct {
		what string
		want []string
	}{
		{"plain", []string{"0000000009", "0000000010", "0000000011"}},
		{"beyond ten digits' order", []string{"0999999999", "1000000000"}},
		{"beside the overflow", []string{"-2147483648", "-2147483647", "2147483646", "2147483647"}}, // which asks the servers for more
	} {
		children := []string{"note", "_c_" + owner + "-lock-0000000000", name("x"), name("5"), name("99999999999"), claimPrefix + "1-0000000001"}
		for _, seq := range tc.want {
			children = append(children, name(seq))
		}
		for range 20 {
			rand.Shuffle(len(children), func(i, j int) { children[i], children[j] = children[j], children[i] })
			line := queueOf(children)
			if len(line) != len(tc.want) {
				t.Fatalf("%s: %d claims in %q, want %d", tc.what, len(line), children, len(tc.want))
			}
			for i, n := range line {
				if n.name != name(tc.want[i]) || n.owner != owner {
					t.Fatalf("%s: place %d is %+v, want %s", tc.what, i, n, tc.want[i])
				}
			}
		}
	}
	if n, ok := parseNode(name("-2147483648")); !ok || n.seq != math.MinInt32 {
		t.Errorf("the number after the overflow is parsed as %d, %v", n.seq, ok)
	}
}
