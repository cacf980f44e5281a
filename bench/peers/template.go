package peers

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
	"strings"
)

// The requests of ours without the rest of it: what the driver sends for a lock and
// an unlock is recorded, and sent again as it was, but for the name, the owner and
// the token. So they follow the driver when it changes, and show which part of a
// difference to the bare commands is the store's work and which is done here.

// blanks are the texts that differ from one lock to the next.
type blanks struct{ name, owner, token string }

// template is the arguments of a request, of which some have blanks.
type template []any

// blank is an argument that is made of pieces: fixed texts, or one of the blanks.
type blank []piece

type piece struct {
	text string
	from func(b *blanks) string // if not nil
}

// newTemplate leaves blanks in the arguments where they have the texts of was.
func newTemplate(arguments []any, was blanks) template {
	t := make(template, len(arguments))
	for i, a := range arguments {
		t[i] = a
		if text, ok := a.(string); ok {
			if b := cut(text, was); len(b) > 1 || len(b) == 1 && b[0].from != nil {
				t[i] = b
			}
		}
	}
	return t
}

func cut(text string, was blanks) blank {
	var b blank
	for text != "" {
		at, length, p := len(text), 0, piece{}
		for what, from := range map[string]func(*blanks) string{
			was.name: func(b *blanks) string { return b.name }, was.owner: func(b *blanks) string { return b.owner },
			was.token: func(b *blanks) string { return b.token },
		} {
			if i := strings.Index(text, what); what != "" && i >= 0 && i < at {
				at, length, p = i, len(what), piece{from: from}
			}
		}
		if at > 0 {
			b = append(b, piece{text: text[:at]})
		}
		if length > 0 {
			b = append(b, p)
		}
		text = text[at+length:]
	}
	return b
}

// fill returns the arguments for another lock.
func (t template) fill(with *blanks) []any {
	arguments := make([]any, len(t))
	for i, a := range t {
		arguments[i] = a
		if b, ok := a.(blank); ok {
			arguments[i] = b.join(with)
		}
	}
	return arguments
}

func (b blank) join(with *blanks) string {
	if len(b) == 1 {
		return b[0].from(with)
	}
	var text strings.Builder
	for _, p := range b {
		if p.from != nil {
			text.WriteString(p.from(with))
		} else {
			text.WriteString(p.text)
		}
	}
	return text.String()
}

var owner = regexp.MustCompile(`^[0-9a-f]{32}$`)

// ownerIn returns the owner that stands among the arguments of a request, or "".
func ownerIn(arguments []any) string {
	for _, a := range arguments {
		if text, ok := a.(string); ok && owner.MatchString(text) {
			return text
		}
	}
	return ""
}

// recordedName returns a name that nobody else uses, and that has nothing in it that
// a driver would have to encode.
func recordedName() string { return "bench-recorded-" + newOwner() }

// newOwner returns an owner as ours are.
func newOwner() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails, by its documentation
	return hex.EncodeToString(random[:])
}
