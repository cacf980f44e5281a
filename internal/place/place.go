// Package place makes a part of a store that belongs to one run of a program and to
// nobody else, on a server that others use, and removes it afterwards.
package place

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
)

// Place is the part of a store that belongs to one run and to nobody else: keys with
// a random prefix, a table or a node of a random name. It lies within what the URL
// names, because that may be all that its user has rights on.
type Place struct {
	Store string // "redis", "mysql", "zk", "etcd"; empty for what has no servers or is not known here
	What  string // "keys that begin with …"

	head   string // the URL up to its query: scheme, user, hosts, path
	query  string
	prefix string // of keys; the table; the node
}

// maxRedisPrefix is what redislock allows.
const maxRedisPrefix = 64

// storeOf returns the kind of store behind a scheme.
func storeOf(scheme string) string {
	switch scheme {
	case "redis", "rediss", "redis+sentinel":
		return "redis"
	case "mysql", "mysqls":
		return "mysql"
	case "zk", "zks":
		return "zk"
	case "etcd", "etcds":
		return "etcd"
	}
	return ""
}

// New returns the place for a run of who, "compare" or "check", in the store that
// rawURL names. Nothing is sent.
func New(rawURL, who string) (*Place, error) {
	u, err := openurl.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	p := &Place{Store: storeOf(u.Scheme())}
	p.head, p.query, _ = strings.Cut(rawURL, "?")
	if p.Store == "" {
		return p, nil
	}
	id := who + "-" + RandomID()
	switch p.Store {
	case "redis":
		p.prefix = u.Text("prefix", "distlock:") + id + ":"
		if len(p.prefix) > maxRedisPrefix {
			return nil, fmt.Errorf("%w: the URL %s: its prefix is too long for the run to add its own to it: with that it has %d bytes, allowed are %d",
				distlock.ErrInvalid, u, len(p.prefix), maxRedisPrefix)
		}
		p.set("prefix", p.prefix)
		p.What = "keys that begin with " + p.prefix
	case "mysql":
		p.prefix = "distlock_" + strings.ReplaceAll(id, "-", "_")
		if schema, _, ok := strings.Cut(u.Text("table", ""), "."); ok {
			if strings.Contains(schema, "`") { // the driver refuses more than that, but opens later
				return nil, fmt.Errorf("%w: the URL %s: no schema is called %q", distlock.ErrInvalid, u, schema)
			}
			p.prefix = schema + "." + p.prefix
		}
		p.set("table", p.prefix)
		p.set("create", "true")
		p.What = fmt.Sprintf("the tables %s and %[1]s_bare", p.prefix)
	case "zk":
		p.prefix = p.below(u, "/", id)
		p.What = "the node " + p.prefix
	case "etcd":
		if prefix := u.Text("prefix", ""); prefix != "" {
			p.prefix = strings.TrimSuffix(prefix, "/") + "/" + id + "/"
			p.set("prefix", p.prefix)
		} else {
			p.prefix = p.below(u, "", id) + "/"
		}
		p.What = "keys that begin with " + p.prefix
	}
	return p, nil
}

// below moves the URL's path to an element of the run, and returns it decoded.
func (p *Place) below(u *openurl.URL, root, id string) string {
	path := strings.Trim(u.Path(), "/")
	p.head = strings.TrimSuffix(p.head, "/")
	if path == "" {
		p.head += "/distlock-" + id
		return root + "distlock-" + id
	}
	p.head += "/" + id
	return root + path + "/" + id
}

// With returns the same place with a parameter in its URL, unless it has it already.
func (p *Place) With(name, value string) *Place {
	own := *p
	if !own.Has(name) {
		own.set(name, value)
	}
	return &own
}

// set gives a parameter a value, whatever it had before.
func (p *Place) set(name, value string) {
	var kept []string
	for pair := range strings.SplitSeq(p.query, "&") {
		if pair != "" && !isParam(pair, name) {
			kept = append(kept, pair)
		}
	}
	p.query = strings.Join(append(kept, name+"="+url.QueryEscape(value)), "&")
}

// Has reports whether the URL has a parameter.
func (p *Place) Has(name string) bool {
	for pair := range strings.SplitSeq(p.query, "&") {
		if isParam(pair, name) {
			return true
		}
	}
	return false
}

func isParam(pair, name string) bool {
	key, _, _ := strings.Cut(pair, "=")
	decoded, err := url.QueryUnescape(key)
	return err == nil && decoded == name
}

// URL returns the URL of the place, password included; by way of addr, a host:port,
// unless that is empty.
func (p *Place) URL(addr string) string {
	u := p.head
	if addr != "" {
		scheme, rest, _ := strings.Cut(p.head, "://")
		authority, path := rest, ""
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			authority, path = rest[:i], rest[i:]
		}
		u = scheme + "://" + authority[:strings.LastIndexByte(authority, '@')+1] + addr + path
	}
	if p.query != "" {
		u += "?" + p.query
	}
	return u
}

// defaultPorts of the stores.
var defaultPorts = map[string]string{"redis": "6379", "mysql": "3306", "zk": "2181", "etcd": "2379"}

// Addr returns the host:port of the server, or an error that says why traffic to it
// cannot be led through a proxy.
func (p *Place) Addr() (string, error) {
	u, err := openurl.Parse(p.URL(""))
	if err != nil {
		return "", err
	}
	if p.Store == "" {
		return "", errors.New("there is no server")
	}
	hosts := u.HostsDefault(defaultPorts[p.Store])
	switch {
	case storeOf(u.Scheme()) != u.Scheme() && u.Scheme() != "redis+sentinel", u.Text("tls", "off") != "off":
		return "", errors.New("the connection is encrypted")
	case u.Scheme() == "redis+sentinel", u.Text("master", "") != "", u.Text("cluster", "false") == "true":
		return "", errors.New("the servers are found by name")
	case len(hosts) != 1:
		return "", errors.New("there are several servers")
	}
	return hosts[0], nil
}

// RandomID returns twelve hexadecimal digits.
func RandomID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return hex.EncodeToString(b[:])
}
