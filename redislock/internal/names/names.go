// Package names turns the names of locks into keys of Redis, and back, and reads their entries.
package names

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
)

// Key returns the key of a name's entry. The other keys of the name begin with it. All share one
// hash tag, so that a script may use them together on a cluster. Neither the prefix nor the
// encoded name contains a brace, so the tag is what stands between the first pair, and different
// names, or prefixes, never share a key.
func Key(prefix, name string) string { return prefix + "{" + encode(name) + "}" }

// NameOf is the reverse of Key. It reports false for what that never returns.
func NameOf(prefix, key string) (string, bool) {
	tag, ok := strings.CutPrefix(key, prefix+"{")
	tag, closed := strings.CutSuffix(tag, "}")
	if !ok || !closed {
		return "", false
	}
	return decode(tag)
}

// special are the bytes that encode escapes: braces, because they delimit the hash
// tag; the escape character; and what makes keys hard to read or type.
func special(b byte) bool {
	return b <= ' ' || b == 0x7f || b == '{' || b == '}' || b == '%'
}

// encode escapes byte by byte, so that the code of a prefix is a prefix of the code. List relies
// on that.
func encode(name string) string {
	var code strings.Builder
	code.Grow(len(name))
	for i := range len(name) {
		if special(name[i]) {
			fmt.Fprintf(&code, "%%%02X", name[i])
		} else {
			code.WriteByte(name[i])
		}
	}
	return code.String()
}

// decode is the reverse of encode. It reports false for what encode never returns.
func decode(code string) (string, bool) {
	name, err := url.PathUnescape(code)
	// A name has only one code. List must not report a key that no lock uses.
	return name, err == nil && name != "" && encode(name) == code
}

// MaxPrefix is the longest prefix, in bytes.
const MaxPrefix = 64

// CheckPrefix returns what is wrong with a prefix.
func CheckPrefix(prefix string) error {
	ok := len(prefix) <= MaxPrefix
	for i := range len(prefix) {
		ok = ok && prefix[i] < 0x7f && (prefix[i] == '%' || !special(prefix[i]))
	}
	if !ok {
		return fmt.Errorf("%w: the prefix is %q, allowed are up to %d visible ASCII characters other than { and }",
			distlock.ErrInvalid, prefix, MaxPrefix)
	}
	return nil
}

// Pattern returns what SCAN has to match to find the entries of the names that
// start with start. Only an entry ends with a brace.
func Pattern(prefix, start string) string {
	return globQuote.Replace(prefix) + "{" + globQuote.Replace(encode(start)) + "*}"
}

var globQuote = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// Entry is what the key of a held name contains.
type Entry struct {
	Owner    string
	Token    int64
	Acquired time.Time
	Holder   string
}

// ParseEntry reads "owner token µs holder". It reports false for what the scripts never write.
func ParseEntry(text string) (e Entry, ok bool) {
	part := strings.SplitN(text, " ", 4)
	if len(part) != 4 {
		return e, false
	}
	var micros int64
	var err1, err2 error
	e.Token, err1 = strconv.ParseInt(part[1], 10, 64)
	micros, err2 = strconv.ParseInt(part[2], 10, 64)
	e.Owner, e.Acquired, e.Holder = part[0], time.UnixMicro(micros), part[3]
	return e, err1 == nil && err2 == nil
}
