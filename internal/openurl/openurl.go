// Package openurl is the one home for the URLs that name a backend: parsing,
// redaction, and the parameters that mean the same on every backend.
//
//	u, err := openurl.Parse(raw, "redis", "rediss")
//	if err != nil {
//		return nil, err
//	}
//	u.Common(&o.Options)                           // ttl, holder
//	prefix := u.Text("prefix", "distlock:")
//	dial := u.Duration("dial_timeout", 5*time.Second, time.Millisecond, time.Minute)
//	tlsConfig := u.TLS()
//	if err := u.Err(); err != nil { // wrong values, unknown and misspelt parameters
//		return nil, err
//	}
//
// It is strict: what it does not understand is an error, before any server is
// asked. net/url is not used for the split, because it knows neither lists of
// hosts nor how to fail without quoting the password.
//
// Every error matches distlock.ErrInvalid, and none shows a password.
package openurl

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/distlock-go/distlock"
)

// URL is a parsed URL of the form
//
//	scheme://[user:password@]host[:port][,host[:port]...][/path][?key=value&...]
//
// User, password, path and query may be percent-encoded. They must be where they
// contain characters that separate the parts. Between mem:// and the query there is a path alone.
// It is not safe for concurrent use, and it does not change after Err.
type URL struct {
	scheme string
	secure bool        // the scheme is the TLS form of another one
	user   credentials // nil if there are none
	hosts  []string
	path   string
	query  map[string]string
	keys   []string // of query, as they are written
	text   string   // redacted

	known map[string]Param // every parameter that a getter has asked for
	err   error            // the first error of a getter
}

// credentials are a function: package fmt prints its address, with whatever verb and
// flag. fmt looks into structs, and for a wrong verb also behind pointers.
type credentials func() (name, password string)

// Parse splits raw. Its scheme must be one of schemes, or any if there are none. If
// they contain both "x" and "xs", the second means TLS. The query is checked by the
// getters and Err.
func Parse(raw string, schemes ...string) (*URL, error) {
	u, reason := split(raw)
	if reason != "" {
		return nil, fmt.Errorf("%w: the URL %s %s", distlock.ErrInvalid, Shown(raw), reason)
	}
	if len(schemes) > 0 && !slices.Contains(schemes, u.scheme) {
		return nil, fmt.Errorf("%w: the URL %s has the scheme %q, allowed are %s",
			distlock.ErrInvalid, u, u.scheme, strings.Join(schemes, ", "))
	}
	plain, ok := strings.CutSuffix(u.scheme, "s")
	u.secure = ok && slices.Contains(schemes, plain)
	u.known = make(map[string]Param)
	return u, nil
}

// Scheme returns the scheme of raw in lower case, whatever the rest looks like, or
// "" if raw does not begin with one.
func Scheme(raw string) string {
	scheme, _, ok := strings.Cut(raw, "://")
	if !ok || !validScheme(scheme) {
		return ""
	}
	return strings.ToLower(scheme)
}

// listed finds parameters in a list behind a host, as StackExchange.Redis has them.
var listed = regexp.MustCompile(`^[^:]*(:\d+)?,[^,=:]+=`)

// split parses raw by the grammar alone. The reason for a failure completes the
// sentence "the URL ..." and quotes nothing. Any part of a malformed URL may be a piece
// of the password.
func split(raw string) (u *URL, reason string) {
	u = &URL{scheme: Scheme(raw)}
	switch {
	case u.scheme == "":
		return nil, `does not begin with a scheme, like "redis://"`
	case strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return nil, "contains a space or a control character; write it percent-encoded"
	case strings.Contains(raw, "#"):
		return nil, `contains "#"; write it as %23`
	}
	authority, tail := cutBefore(raw[len(u.scheme)+len("://"):], "/?")
	if u.scheme == "mem" { // it has no hosts: all of it is the path
		authority, tail = "", authority+tail
	}
	if strings.Contains(tail, "@") {
		// Either harmless, or a password with a raw "/" or "?" in it. In that case the
		// rest of it would be taken for a host and a path.
		return nil, `contains "@" after the host; write it as %40, and in a password "/" as %2F and "?" as %3F`
	}
	at := strings.LastIndex(authority, "@")
	if listed.MatchString(authority[:max(at, 0)]) {
		// Either a password, or parameters behind the host, as in "cache:6379,password=P@ss": what is behind the "@" is no host then.
		return nil, `contains "," and "=" before the "@"; parameters are written behind "?", and in a password "," as %2C`
	}
	if u.user, reason = parseUser(authority[:max(at, 0)], at >= 0); reason != "" {
		return nil, reason
	}
	if u.hosts, reason = parseHosts(authority[at+1:], at >= 0); reason != "" {
		return nil, reason
	}
	path, query := cutBefore(tail, "?")
	switch {
	case strings.Contains(tail, ";"): // some write parameters so, and a password among them
		return nil, `contains ";" after the host; parameters are separated by "&", and in a value it is written as %3B`
	case strings.Count(query, "?") > 1:
		return nil, `contains "?" twice; parameters are separated by "&", and in a value it is written as %3F`
	}
	path, err := url.PathUnescape(path)
	if err != nil {
		return nil, `has a "%" in its path that is not followed by two hexadecimal digits`
	}
	u.path = path
	if u.query, u.keys, reason = parseQuery(strings.TrimPrefix(query, "?")); reason != "" {
		return nil, reason
	}
	// Without a host this may be a DSN, "me://part:of-password@/db".
	u.text = u.scheme + "://" + redactUser(authority[:at+1], len(u.hosts) > 0) + authority[at+1:] + redactKeys(redactQuery(tail))
	return u, ""
}

// cutBefore splits s before the first of the separators.
func cutBefore(s, separators string) (before, rest string) {
	if i := strings.IndexAny(s, separators); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

func validScheme(s string) bool {
	for i, r := range s {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789+-.", r)) {
			return false
		}
	}
	return s != ""
}

func parseUser(s string, given bool) (credentials, string) {
	if !given {
		return nil, ""
	}
	rawName, rawPassword, _ := strings.Cut(s, ":")
	name, err1 := url.PathUnescape(rawName)
	password, err2 := url.PathUnescape(rawPassword)
	if err1 != nil || err2 != nil {
		return nil, `has a "%" in its user or password that is not followed by two hexadecimal digits; write "%" as %25`
	}
	return func() (string, string) { return name, password }, ""
}

func parseHosts(s string, afterUser bool) ([]string, string) {
	if s == "" {
		return nil, ""
	}
	hosts := strings.Split(s, ",")
	for i, h := range hosts {
		if port := numericPort.FindStringSubmatch(h); port != nil && !validPort(port[1]) {
			return nil, fmt.Sprintf("has a port in place %d of its hosts that is not 1 to 65535", i+1)
		}
		if !validHost(h) {
			return nil, fmt.Sprintf("has no valid host[:port] in place %d of its hosts "+
				"(ports are 1 to 65535, IPv6 addresses are in brackets)%s", i+1, ofDSN(h, afterUser))
		}
	}
	return hosts, ""
}

// ofDSN tells what to write in a URL for the host of a DSN of go-sql-driver/mysql. It shows the host only if it follows
// a user: else it may be a password.
func ofDSN(s string, afterUser bool) string {
	host, closed := strings.CutSuffix(strings.TrimPrefix(s, "tcp("), ")")
	switch {
	case !strings.HasPrefix(s, "tcp("):
		return ""
	case afterUser && closed && validHost(host):
		return "; write " + host + " without tcp( )"
	}
	return "; write host:port without tcp( )"
}

// numericPort finds what was meant for a port. It is not shown: it may be a password that no host follows.
var numericPort = regexp.MustCompile(`:([0-9]+)$`)

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n != 0
}

func validHost(s string) bool {
	name, port, hasPort := strings.Cut(s, ":")
	if strings.HasPrefix(s, "[") {
		ip, after, closed := strings.Cut(s[1:], "]")
		addr, err := netip.ParseAddr(ip)
		if !closed || err != nil || !addr.Is6() {
			return false
		}
		name, hasPort = ip, after != ""
		if port = strings.TrimPrefix(after, ":"); hasPort && port == after {
			return false
		}
	} else if strings.ContainsFunc(name, notInHostName) {
		return false
	}
	return name != "" && (!hasPort || validPort(port))
}

func notInHostName(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	return !letter && !strings.ContainsRune("0123456789-._~", r)
}

func parseQuery(s string) (values map[string]string, keys []string, reason string) {
	values = make(map[string]string)
	if s == "" {
		return values, nil, ""
	}
	for i, pair := range strings.Split(s, "&") {
		rawKey, rawValue, ok := strings.Cut(pair, "=")
		key, err1 := url.QueryUnescape(rawKey)
		value, err2 := url.QueryUnescape(rawValue)
		switch {
		case !ok || key == "":
			return nil, nil, fmt.Sprintf("has no key=value in place %d of its parameters", i+1)
		case err1 != nil || err2 != nil:
			return nil, nil, fmt.Sprintf(`has a "%%" in parameter %d that is not followed by two hexadecimal digits`, i+1)
		}
		if _, dup := values[key]; dup {
			if !showKey(key) {
				return nil, nil, fmt.Sprintf("gives a parameter twice, in place %d", i+1)
			}
			return nil, nil, fmt.Sprintf("gives the parameter %q twice", key)
		}
		values[key] = value
		keys = append(keys, key)
	}
	return values, keys, ""
}

// Scheme returns the scheme in lower case.
func (u *URL) Scheme() string { return u.scheme }

// Hosts returns the hosts as they are written, with a port or without; none if the
// URL names none.
func (u *URL) Hosts() []string { return slices.Clone(u.hosts) }

// HostsDefault returns the hosts as "host:port", with the given port where none is
// written, and localhost if the URL names no host. A host listed twice is an error of
// Err: it would count as two servers.
func (u *URL) HostsDefault(port string) []string {
	if len(u.hosts) == 0 {
		return []string{net.JoinHostPort("localhost", port)}
	}
	out := make([]string, 0, len(u.hosts))
	for _, h := range u.hosts {
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), port)
		}
		if slices.Contains(out, h) {
			u.fail("the host %s is listed twice", h)
		}
		out = append(out, h)
	}
	return out
}

// Path returns the path, decoded, with its leading slash, which that of mem:// needs not have; "" if there is none.
func (u *URL) Path() string { return u.path }

// User returns the user's name and password, decoded. ok is false if the URL
// contains neither.
func (u *URL) User() (name, password string, ok bool) {
	if u.user == nil {
		return "", "", false
	}
	name, password = u.user()
	return name, password, true
}

// String returns the URL without its password.
func (u *URL) String() string { return u.text }
