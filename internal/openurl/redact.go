package openurl

import (
	"regexp"
	"strings"
	"unicode"
)

// mask stands for what is not shown. It has a fixed length, so it does not tell
// the length of what it stands for.
const mask = "xxxxx"

// secretKey finds parameters that are secret by their names. No backend takes its
// password from a parameter; but somebody may have thought so.
var secretKey = regexp.MustCompile(`(?i)([?&][^=&]*(?:pass|pwd|secret|token|auth|cred)[^=&]*=)[^&]*`)

// Redact returns raw without its password, for logs and errors. raw may be a URL,
// well-formed or not, a DSN of go-sql-driver/mysql, or anything else. Where it is
// not clear what is the password, it hides more than that.
func Redact(raw string) string {
	if u, reason := split(raw); reason == "" {
		return u.text
	}
	prefix := Scheme(raw)
	rest := raw
	if prefix != "" {
		rest = raw[len(prefix)+len("://"):]
		prefix += "://"
	}
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		// Nothing says where the host is: "redis://:password", for example.
		return prefix + mask
	}
	// A password may contain any separator, raw, also "@"; but what follows the
	// last "@" of all can be part of one only if it was given as a parameter.
	head, tail := rest[:at+1], rest[at+1:]
	if secretKey.MatchString(head) {
		_, tail = cutBefore(tail, "&")
		tail = mask + tail
	}
	// Of a DSN, the user's name ends at the first colon. In what looks like a URL
	// but is none, that may be a colon of the password.
	return printable(prefix + redactUser(head, prefix == "") + redactQuery(tail))
}

// redactUser hides the password in "user:password@", and the user as well unless
// showUser. A user alone is always hidden: it may be a password without its colon.
func redactUser(s string, showUser bool) string {
	if s == "" {
		return ""
	}
	name, _, ok := strings.Cut(s, ":")
	if !ok || !showUser || strings.ContainsFunc(name, notInHostName) {
		return mask + "@"
	}
	return name + ":" + mask + "@"
}

func redactQuery(s string) string {
	return secretKey.ReplaceAllString(s, "${1}"+mask)
}

// printable keeps what is not a URL from breaking lines in a log.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
