package openurl

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/distlock-go/distlock"
)

// mask stands for what is not shown. It has a fixed length, so it does not tell
// the length of what it stands for.
const mask = "xxxxx"

// shown are the parameters with visible values: those that some backend takes. The
// value of any other may be a password, under a guessed parameter name.
var shown = []string{
	"acl", "after_restart", "cluster", "create", "dial_timeout", "holder", "master", "max_conns", "max_ttl", "pool_size", "prefix",
	"request_timeout", "sentinel_auth", "session_timeout", "table", "tick_time", "tls", "tls_ca", "tls_cert", "tls_key",
	"tls_server_name", "token_base", "token_memory", "ttl", "wait_conns", "wait_replicas",
}

// param finds the parameters of what may be a URL: separator and key, key, value.
var param = regexp.MustCompile(`([?&]([^=&]*)=)([^&]*)`)

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
	at := strings.LastIndex(rest, "@") + 1
	head, tail := rest[:at], rest[at:]
	if at == 0 || strings.Contains(head, "=") || !address.MatchString(tail) {
		// Nothing says where a password ends: "redis://:password", or "host=h password=p@ssword".
		return prefix + mask
	}
	// Of a DSN, the user's name ends at the first colon. In what looks like a URL
	// but is none, that may be a colon of the password.
	return printable(prefix + redactUser(head, prefix == "") + redactQuery(tail))
}

// address finds the form that a DSN of go-sql-driver/mysql has behind its "@": "tcp(host:port)/schema".
var address = regexp.MustCompile(`^[0-9A-Za-z+_.-]+\([^()]*\)/`)

// Shown is Redact for the text of an error: where nothing of raw is left but its scheme, it says why.
func Shown(raw string) string {
	if raw == "" {
		return `""`
	}
	text := Redact(raw)
	if strings.TrimPrefix(text, Scheme(raw)+"://") == mask {
		text += " (hidden: it may contain a password)"
	}
	return text
}

// Named has the error of an Open begin with what was opened: the URL, redacted, unless it is said already.
func Named(rawURL string, err error) error {
	url := Redact(rawURL)
	if err == nil || rawURL == "" || strings.Contains(err.Error(), url) {
		return err
	}
	if e, ok := err.(*distlock.Error); ok {
		err = e.Err // without the name of the store, which the URL has
	}
	return &distlock.Error{Op: "open " + url, Err: err}
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

// redactQuery hides the values of parameters that are not known. What follows a ";" or a second "?" may be one as well.
func redactQuery(s string) string {
	s, hidden := cutBefore(s, ";")
	if before, query := cutBefore(s, "?"); strings.Count(query, "?") > 1 {
		query, hidden = cutBefore(query[1:], "?")
		s = before + "?" + query
	}
	if hidden != "" {
		hidden = hidden[:1] + mask
	}
	return param.ReplaceAllStringFunc(s, func(pair string) string {
		if part := param.FindStringSubmatch(pair); !slices.Contains(shown, part[2]) {
			return part[1] + mask
		}
		return pair
	}) + hidden
}

// Secrets returns the passwords in raw, as they are written there and decoded. They are
// what Redact hides of a URL, as far as it is clear what to hide.
func Secrets(raw string) []string {
	_, rest, ok := strings.Cut(raw, "://")
	if !ok {
		rest = raw
	}
	var written []string
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		if _, password, ok := strings.Cut(rest[:at], ":"); ok {
			written = append(written, password)
		}
	}
	for _, part := range param.FindAllStringSubmatch(rest, -1) {
		if !slices.Contains(shown, part[2]) {
			written = append(written, part[3])
		}
	}
	var secrets []string
	for _, s := range written {
		secrets = append(secrets, s)
		if decoded, err := url.PathUnescape(s); err == nil && decoded != s {
			secrets = append(secrets, decoded)
		}
	}
	return slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
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
