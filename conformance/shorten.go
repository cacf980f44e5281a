package conformance

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/distlock-go/distlock/conformance/oracle"
)

// quotedText is one as %q prints it.
var quotedText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// maxShown is how long a name may be before it is shortened. That of a situation says which one it is.
const maxShown = 128

// shorten prints the long names in a text as oracle.Quote does: a name of 512 bytes
// hides what is said of it. Names are known by the prefix of the check.
func (c *C) shorten(text string) string {
	if len(text) <= maxShown { // as nearly all are
		return text
	}
	text = quotedText.ReplaceAllStringFunc(text, func(s string) string {
		name, err := strconv.Unquote(s)
		if err != nil || len(name) <= maxShown || !strings.Contains(name, c.prefix) {
			return s
		}
		return oracle.Quote(name)
	})
	bare := regexp.MustCompile(regexp.QuoteMeta(c.prefix) + `[^\s"(){}\[\],;]+`)
	return bare.ReplaceAllStringFunc(text, func(s string) string {
		if len(s) <= maxShown {
			return s
		}
		return fmt.Sprintf("%s of %d bytes", strings.ToValidUTF8(s[:maxShown/4]+"…"+s[len(s)-maxShown/8:], "?"), len(s))
	})
}

func (c *C) shortenAll(texts []string) []string {
	var short []string
	for _, text := range texts {
		short = append(short, c.shorten(text))
	}
	return short
}
