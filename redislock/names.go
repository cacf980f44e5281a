package redislock

import (
	"fmt"
	"net/url"
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
	var code []byte // nil as long as the code is the name
	for i := range len(name) {
		switch b := name[i]; {
		case special(b):
			if code == nil {
				code = append(make([]byte, 0, 3*len(name)), name[:i]...)
			}
			code = fmt.Appendf(code, "%%%02X", b)
		case code != nil:
			code = append(code, b)
		}
	}
	if code == nil {
		return name
	}
	return string(code)
}

// decode is the reverse of encode. It reports false for what encode never returns.
func decode(code string) (string, bool) {
	name, err := url.PathUnescape(code)
	// A name has only one code. List must not report a key that no lock uses.
	return name, err == nil && name != "" && encode(name) == code
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
