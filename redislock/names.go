package redislock

import (
	"fmt"
	"strings"

	"github.com/distlock-go/distlock"
)

// key is the key of a name: a string, the entry of its holder, that lives as long as
// the lease. The other keys of the name are derived from it. All share one hash tag,
// so that a script may use them together on a cluster. Neither the prefix nor the
// encoded name contains a brace, so the tag is what stands between the first pair,
// and different names, or prefixes, never share a key.
type key string

func keyOf(prefix, name string) key { return key(prefix + "{" + encode(name) + "}") }

func (k key) entry() string   { return string(k) }
func (k key) token() string   { return string(k) + ":token" }   // string: the last token
func (k key) queue() string   { return string(k) + ":queue" }   // list: the owners that wait, in order
func (k key) waiters() string { return string(k) + ":waiters" } // hash: their places; see queue.lua

// nameOf is the reverse of keyOf. It reports false for what that never returns.
func nameOf(prefix, key string) (string, bool) {
	tag, ok := strings.CutPrefix(key, prefix+"{")
	if !ok {
		return "", false
	}
	tag, ok = strings.CutSuffix(tag, "}")
	if !ok {
		return "", false
	}
	return decode(tag)
}

// special are the bytes that encode escapes: braces, because they delimit the hash
// tag; the escape character; and what makes keys hard to read or type.
func special(b byte) bool {
	return b <= ' ' || b == 0x7f || b == '{' || b == '}' || b == '%'
}

const hexDigits = "0123456789ABCDEF"

// encode escapes byte by byte, so that the code of a prefix is a prefix of the
// code, which List relies on.
func encode(name string) string {
	n := 0
	for i := range len(name) {
		if special(name[i]) {
			n++
		}
	}
	if n == 0 {
		return name
	}
	out := make([]byte, 0, len(name)+2*n)
	for i := range len(name) {
		if b := name[i]; special(b) {
			out = append(out, '%', hexDigits[b>>4], hexDigits[b&15])
		} else {
			out = append(out, b)
		}
	}
	return string(out)
}

// decode is the reverse of encode. It reports false for what encode never returns.
func decode(code string) (string, bool) {
	out := make([]byte, 0, len(code))
	for i := 0; i < len(code); i++ {
		b := code[i]
		if b == '%' {
			if i+2 >= len(code) {
				return "", false
			}
			high, low := strings.IndexByte(hexDigits, code[i+1]), strings.IndexByte(hexDigits, code[i+2])
			if high < 0 || low < 0 || !special(byte(high<<4|low)) {
				return "", false
			}
			b = byte(high<<4 | low)
			i += 2
		} else if special(b) {
			return "", false
		}
		out = append(out, b)
	}
	return string(out), len(out) > 0
}

const maxPrefix = 64

func checkPrefix(prefix string) error {
	ok := len(prefix) <= maxPrefix
	for i := range len(prefix) {
		ok = ok && prefix[i] < 0x7f && (prefix[i] == '%' || !special(prefix[i]))
	}
	if !ok {
		return fmt.Errorf("%w: the prefix is %q, allowed are up to %d visible ASCII characters other than { and }",
			distlock.ErrInvalid, prefix, maxPrefix)
	}
	return nil
}

// pattern returns what SCAN has to match to find the entries of the names that
// start with start. Only an entry ends with a brace.
func pattern(prefix, start string) string {
	return globQuote.Replace(prefix) + "{" + globQuote.Replace(encode(start)) + "*}"
}

var globQuote = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
