package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/openurl"
)

// stdout and stderr are the ways out of this program. Nothing is written past them but
// what a terminal alone understands: a progress bar, and colours.
//
// Standard output is data: a name in it that looks like a password stays as it is.
//
// Painted text has this program's own colours.
var (
	given          = newMask(append(arguments(), environment()...)...)
	stdout, stderr = &masked{os.Stdout, given.data}, &masked{os.Stderr, given.message}
	painted        = &masked{os.Stdout, given.painted}
)

// arguments returns those of this program, without those of a command that it runs.
func arguments() []string {
	args := slices.Clone(os.Args[1:])
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return args
}

// environment returns the values of this program's own variables.
func environment() (values []string) {
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "DISTLOCK_") {
			values = append(values, value)
		}
	}
	return values
}

// minSecret is the length from which a password is looked for in messages, wherever it
// stands. A shorter one is part of too many words; in a URL it is hidden all the same.
const minSecret = 4

// mask hides passwords, and keeps what others wrote from playing with the terminal. It
// is safe for concurrent use.
type mask struct {
	mu    sync.Mutex
	pairs []string // for replacer: what is not to be shown, and what stands for it
	// replacer is made anew with every pair; messages are few.
	replacer *strings.Replacer
}

func newMask(texts ...string) *mask {
	m := &mask{replacer: strings.NewReplacer()}
	for _, text := range texts {
		if at := urlStart.FindStringIndex(text); at != nil { // it may follow a flag
			m.learn(text[at[0]:])
		}
	}
	return m
}

// learn takes in a URL, well-formed or not. Its password is not to be shown.
func (m *mask) learn(text string) {
	if slices.Contains(backends.Default.Schemes(), text) {
		return // no secret, and in every list of what is allowed
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hide(text, openurl.Redact(text))
	for _, secret := range openurl.Secrets(text) {
		if len(secret) >= minSecret {
			m.hide(secret, "xxxxx")
		}
	}
	m.replacer = strings.NewReplacer(m.pairs...)
}

// hide has what is replaced, as it is written and as Go quotes it. Of two texts that
// begin at the same place, a Replacer prefers the one that comes first.
func (m *mask) hide(what, by string) {
	quoted := strings.Trim(strconv.Quote(what), `"`)
	for _, s := range []string{what, quoted} {
		if s != by {
			m.pairs = append(m.pairs, s, by)
		}
	}
}

// message returns text for people. The name of this program stays, whatever the password is.
func (m *mask) message(text string) string {
	if rest, ok := strings.CutPrefix(text, "distlock: "); ok {
		return "distlock: " + m.message(rest)
	}
	m.mu.Lock()
	text = m.replacer.Replace(text)
	m.mu.Unlock()
	return tame(urlLike.ReplaceAllStringFunc(text, redactLike))
}

// data returns text for programs: with all that it has, but for the passwords of URLs. A name may look like a URL, and what has
// an "@" but no colon before it has no password: docker://nginx@sha256:ab must not look like another image.
func (m *mask) data(text string) string {
	return tame(urlLike.ReplaceAllStringFunc(text, func(s string) string {
		_, rest, _ := strings.Cut(s, "://")
		if at := strings.LastIndex(rest, "@"); at >= 0 && strings.Contains(rest[:at], ":") {
			return redactLike(s)
		}
		return s
	}))
}

// painted returns text with its colours. They are this program's own: a report has been
// masked before it is painted.
func (m *mask) painted(text string) string {
	var b strings.Builder
	last := 0
	for _, at := range colour.FindAllStringIndex(text, -1) {
		b.WriteString(m.data(text[last:at[0]]) + text[at[0]:at[1]])
		last = at[1]
	}
	return b.String() + m.data(text[last:])
}

// colour finds what switches colours, and does nothing else.
var colour = regexp.MustCompile("\x1b\\[[0-9;]*m")

// urlLike finds what may be a URL, and urlStart where one begins. A quote ends it, but not an
// escaped one: names are quoted if they have any, and their passwords may.
var (
	urlLike  = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://(?:\\.|[^\s"\\])+`)
	urlStart = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://`)
)

// redactLike redacts what looks like a URL, and leaves the punctuation after it.
func redactLike(s string) string {
	end := strings.TrimRight(s, "`"+`"'\:;,.)}>`)
	if !strings.Contains(end, "[") {
		end = strings.TrimRight(end, "]")
	}
	rest := s[len(end):]
	_, authority, _ := strings.Cut(end, "://")
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority = authority[:i]
	}
	known := slices.Contains(backends.Default.Schemes(), openurl.Scheme(end))
	if known || strings.Contains(end, "@") || notPort.MatchString(authority) {
		return openurl.Redact(end) + rest
	}
	return s
}

// notPort finds what comes after a host, and is no port: the beginning of a password.
var notPort = regexp.MustCompile(`:[^,\]]*[^0-9:,\]]`)

// tame replaces what a terminal would act on.
func tame(text string) string {
	return strings.Map(func(r rune) rune {
		if harmless(r) {
			return r
		}
		return '?'
	}, text)
}

// harmless reports whether a terminal does with r nothing but show it.
func harmless(r rune) bool {
	return r == '\n' || r == '\t' || r != utf8.RuneError && !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r)
}

// escaped writes JSON, which can say in other characters what tame would replace: nothing of it is lost.
type escaped struct{ to io.Writer }

// Write implements io.Writer. JSON has such characters only inside of strings.
func (e escaped) Write(text []byte) (int, error) {
	var b strings.Builder
	for _, r := range string(text) {
		if harmless(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	if _, err := io.WriteString(e.to, b.String()); err != nil {
		return 0, err
	}
	return len(text), nil
}

// masked writes what show makes of each text.
type masked struct {
	to   io.Writer
	show func(string) string
}

// Write implements io.Writer. A password split between two calls is not found:
// messages, and the cells of tables, are written whole.
func (m *masked) Write(text []byte) (int, error) {
	if _, err := io.WriteString(m.to, m.show(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}
