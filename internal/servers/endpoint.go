package servers

import (
	"errors"
	"net"
	"net/url"
	"strings"
)

// endpoint is a distlock URL cut at its address. It is cut by hand because the address may be a list of hosts
// (zk://a:2181,b:2181/chroot). net/url does not take such a list for a host.
type endpoint struct {
	scheme   string
	userinfo string // as written, still escaped
	hosts    string // host:port, or several with commas between
	tail     string // path, query and fragment as written
}

// parseEndpoint cuts raw. The address's missing ports are filled in with the given one. Errors never quote raw, for
// it may hold a password.
func parseEndpoint(raw string, port string) (endpoint, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || scheme == "" {
		return endpoint{}, errors.New("it is not of the form scheme://host:port")
	}
	e := endpoint{scheme: scheme, hosts: rest}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		e.hosts, e.tail = rest[:i], rest[i:]
	}
	if i := strings.LastIndexByte(e.hosts, '@'); i >= 0 {
		e.userinfo, e.hosts = e.hosts[:i], e.hosts[i+1:]
	}
	hosts := strings.Split(e.hosts, ",")
	for i, h := range hosts {
		if h == "" {
			return endpoint{}, errors.New("a host is empty")
		}
		if _, _, err := net.SplitHostPort(h); err != nil {
			hosts[i] = net.JoinHostPort(strings.Trim(h, "[]"), port)
		}
	}
	if _, err := e.rest(); err != nil {
		return endpoint{}, err
	}
	e.hosts = strings.Join(hosts, ",")
	return e, nil
}

// String is the URL, password included.
func (e endpoint) String() string {
	if e.userinfo == "" {
		return e.scheme + "://" + e.hosts + e.tail
	}
	return e.scheme + "://" + e.userinfo + "@" + e.hosts + e.tail
}

// redacted is the URL as it may be shown.
func (e endpoint) redacted() string {
	if name, _, secret := strings.Cut(e.userinfo, ":"); secret {
		e.userinfo = name + ":xxxxx"
	}
	// A password may also stand in the query (…?password=…), under a name each driver chooses: show none of it.
	if path, _, ok := strings.Cut(e.tail, "?"); ok {
		e.tail = path + "?…"
	}
	return e.String()
}

// at is the same URL at another address.
func (e endpoint) at(hosts string) endpoint {
	e.hosts = hosts
	return e
}

// addrs are the host:port pairs; addr is the first of them.
func (e endpoint) addrs() []string { return strings.Split(e.hosts, ",") }
func (e endpoint) addr() string    { return e.addrs()[0] }

// rest is everything but the address, unescaped.
func (e endpoint) rest() (*url.URL, error) {
	u, err := url.Parse(e.at("host").String())
	if err != nil {
		// The cause is left out: it quotes the piece it stumbled over, perhaps a part of the password.
		return nil, errors.New("its user, path or query is not valid in a URL")
	}
	return u, nil
}

// login is the user and password, if any.
func (e endpoint) login() (user, password string) {
	u, err := e.rest()
	if err != nil || u.User == nil {
		return "", ""
	}
	password, _ = u.User.Password()
	return u.User.Username(), password
}

// path is the first element after the address: a database's name or number.
func (e endpoint) path() string {
	u, err := e.rest()
	if err != nil {
		return ""
	}
	return strings.Trim(u.Path, "/")
}

// tls reports whether a parameter of the URL speaks of TLS.
func (e endpoint) tls() bool {
	_, query, _ := strings.Cut(e.tail, "?")
	return strings.Contains(strings.ToLower(query), "tls")
}
