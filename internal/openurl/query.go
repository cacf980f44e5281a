package openurl

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/distlock-go/distlock"
)

// Param describes a parameter of a URL. docs/config.md is tested against it.
type Param struct {
	Name    string
	Type    string // "text", "integer", "boolean", "duration" or "word"
	Default string // as one would write it; "" if there is none, or none that one could write
	Allowed string // the range or the words; "" if anything goes
}

// UnknownParamError is the error for the first parameter that no getter has asked for.
type UnknownParamError struct {
	URL     string // redacted
	Name    string
	Nearest []string // the known ones that it looks like, sorted
	Known   []Param  // sorted by name
}

// Error says what to write instead, as far as that is known, and names all known ones. It names the unknown one
// unless that may be a password.
func (e *UnknownParamError) Error() string {
	names := make([]string, len(e.Known))
	for i, p := range e.Known {
		names[i] = p.Name
	}
	which := "an unknown parameter" // not shown: it may be a password that was written in place of a name
	if len(e.Nearest) > 0 || showFirstKey(e.Name) {
		which = fmt.Sprintf("the unknown parameter %q", e.Name)
	}
	if hint := e.hint(); hint != "" {
		which += " (" + hint + ")"
	}
	return fmt.Sprintf("%v: the URL %s has %s, allowed are %s", distlock.ErrInvalid, e.URL, which, strings.Join(names, ", "))
}

// Unwrap returns distlock.ErrInvalid.
func (e *UnknownParamError) Unwrap() error { return distlock.ErrInvalid }

// Text returns the parameter key, or def if the URL does not give it. It must be
// UTF-8, and not empty.
func (u *URL) Text(key, def string) string {
	s, ok := u.get(Param{Name: key, Type: "text", Default: def})
	if !ok {
		return def
	}
	if s == "" || !utf8.ValidString(s) {
		u.failParam(key, s, "a text that is not empty, in UTF-8")
	}
	return s
}

// Int returns the parameter key, or def. The parameter must lie within min and max; def
// need not.
func (u *URL) Int(key string, def, min, max int) int {
	return int(u.Int64(key, int64(def), int64(min), int64(max)))
}

// Int64 is Int for more than an int can hold.
func (u *URL) Int64(key string, def, min, max int64) int64 {
	p := Param{Name: key, Type: "integer", Allowed: fmt.Sprintf("%d to %d", min, max)}
	if min <= def && def <= max {
		p.Default = strconv.FormatInt(def, 10)
	}
	s, ok := u.get(p)
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < min || n > max {
		u.failParam(key, s, "an integer from "+p.Allowed)
	}
	return n
}

// Bool returns the parameter key, or def. The parameter must be true or false.
func (u *URL) Bool(key string, def bool) bool {
	s, ok := u.get(Param{Name: key, Type: "boolean", Default: strconv.FormatBool(def), Allowed: "true, false"})
	if !ok {
		return def
	}
	if s != "true" && s != "false" {
		u.failParam(key, s, "true or false")
	}
	return s == "true"
}

// Duration returns the parameter key, a text like "1m30s", or def. The parameter must
// lie within min and max; def need not.
func (u *URL) Duration(key string, def, min, max time.Duration) time.Duration {
	p := Param{Name: key, Type: "duration", Allowed: Short(min) + " to " + Short(max)}
	if min <= def && def <= max {
		p.Default = Short(def)
	}
	s, ok := u.get(p)
	if !ok {
		return def
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < min || d > max {
		u.failParam(key, s, `a duration like "30s", from `+p.Allowed)
	}
	return d
}

// OneOf returns the parameter key, or the first of words. The parameter must be one of
// words.
func (u *URL) OneOf(key string, words ...string) string {
	allowed := strings.Join(words, ", ")
	s, ok := u.get(Param{Name: key, Type: "word", Default: words[0], Allowed: allowed})
	if !ok {
		return words[0]
	}
	if !slices.Contains(words, s) {
		u.failParam(key, s, "one of "+allowed)
	}
	return s
}

// Common fills in what means the same on every backend: ttl, holder and token_base, by
// the rules of Merge. The root package knows the defaults, and Common leaves them out.
func (u *URL) Common(o *distlock.Options) {
	ttl := u.Duration("ttl", distlock.DefaultTTL, time.Millisecond, distlock.MaxTTL)
	if _, given := u.query["ttl"]; given {
		Merge(u, "ttl", ttl, &o.TTL)
	}
	Merge(u, "holder", u.Text("holder", ""), &o.Holder)
	Merge(u, "token_base", u.Int64("token_base", 0, 0, math.MaxInt64), &o.TokenBase)
}

// Merge sets *option to value. A getter has returned value for the parameter key, or
// another part of the URL, called key in errors, gives it. An option that is set
// already to something else is an error: neither overrides the other silently. It is
// kept, though, if value is no more than the default of the parameter, or zero in another part of the URL.
func Merge[T comparable](u *URL, key string, value T, option *T) {
	var none T
	_, param := u.known[key]
	_, given := u.query[key]
	if *option != none && value != *option && (param && given || !param && value != none) {
		u.fail("the %s is %v, but also given as %v; the two must be the same", key, value, *option)
	}
	if *option == none {
		*option = value
	}
}

// Err returns the first error of a getter. If there is none, it returns an
// UnknownParamError if the URL has a parameter that no getter has asked for. It is
// called after the getters and before a server is asked.
func (u *URL) Err() error {
	if u.err != nil {
		return u.err
	}
	for _, name := range u.keys { // the first one: see showFirstKey
		if _, ok := u.known[name]; ok {
			continue
		}
		names := slices.Sorted(maps.Keys(u.known))
		e := &UnknownParamError{URL: u.text, Name: name, Nearest: Nearest(name, names)}
		for _, n := range names {
			e.Known = append(e.Known, u.known[n])
		}
		return e
	}
	return nil
}

// get declares p and returns what the URL gives for it.
func (u *URL) get(p Param) (string, bool) {
	u.known[p.Name] = p
	s, ok := u.query[p.Name]
	return s, ok
}

func (u *URL) failParam(key, value, want string) {
	u.fail("the parameter %s is %q, allowed is %s", key, value, want)
}

// fail records an error; only the first counts, the others may follow from it.
func (u *URL) fail(format string, args ...any) {
	if u.err == nil {
		u.err = fmt.Errorf("%w: the URL %s: %s", distlock.ErrInvalid, u.text, fmt.Sprintf(format, args...))
	}
}

// Short formats d without the zeros that time.Duration appends: "1h", not "1h0m0s".
func Short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Nearest returns the names that take the fewest edits to reach: "tll" may be "tls" or
// "ttl". It returns none if so many edits are more likely another meaning than a slip.
func Nearest(name string, names []string) []string {
	clean := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "-", "_") }
	best := 1 + len(name)/3
	var found []string
	for _, n := range names {
		switch d := edits(clean(name), clean(n)); {
		case d < best:
			best, found = d, []string{n}
		case d == best:
			found = append(found, n)
		}
	}
	return found
}

// quoted words a choice: "a" or "b".
func quoted(names []string) string {
	var list []string
	for _, n := range names {
		list = append(list, strconv.Quote(n))
	}
	return strings.Join(list, " or ")
}

// edits returns the number of bytes to insert, delete, replace or swap with their
// neighbours that turns a into b.
func edits(a, b string) int {
	before, last, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			next[j] = min(replace, last[j]+1, next[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, last, next = last, next, before
	}
	return last[len(b)]
}
