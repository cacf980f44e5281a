// Package sandbox makes a part of a store for one run of a program alone, on a server
// that others use, and removes it afterwards.
package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
)

// Sandbox is the part of a store for one run alone: keys with a random prefix, a table
// or a node of a random name. It lies within what the URL names: its user may have
// rights on nothing else.
type Sandbox struct {
	Store string // "redis", "redlock", "mysql", "postgres", "zk", "etcd"; empty for what has no servers or is not known here
	What  string // "keys that begin with …"

	head   string // the URL up to its query: scheme, user, hosts, path
	query  string
	prefix string // of keys; the table; the node
}

// RemovePatience is for removing a sandbox: a handful of requests, or many where a large
// database must be searched for keys.
const RemovePatience = 10 * time.Second

// maxRedisPrefix is what redislock allows.
const maxRedisPrefix = 64

// storeOf returns the kind of store behind a scheme.
func storeOf(scheme string) string {
	switch scheme {
	case "redis", "rediss", "redis+sentinel":
		return "redis"
	case "redlock", "redlocks":
		return "redlock"
	case "mysql", "mysqls":
		return "mysql"
	case "postgres", "postgresql":
		return "postgres"
	case "zk", "zks":
		return "zk"
	case "etcd", "etcds":
		return "etcd"
	}
	return ""
}

// New returns the sandbox for a run of "compare" or "check", in the store that rawURL
// names. Nothing is sent.
func New(rawURL, who string) (*Sandbox, error) {
	u, err := openurl.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	s := &Sandbox{Store: storeOf(u.Scheme())}
	s.head, s.query, _ = strings.Cut(rawURL, "?")
	if s.Store == "" {
		return s, nil
	}
	id := who + "-" + RandomID()
	switch s.Store {
	case "redis", "redlock":
		standard := map[string]string{"redis": "distlock:", "redlock": "redlock:"}
		s.prefix = u.Text("prefix", standard[s.Store]) + id + ":"
		if len(s.prefix) > maxRedisPrefix {
			return nil, fmt.Errorf("%w: the URL %s: its prefix is too long for the run to add its own to it: with that it has %d bytes, allowed are %d",
				distlock.ErrInvalid, u, len(s.prefix), maxRedisPrefix)
		}
		s.set("prefix", s.prefix)
		s.What = "keys that begin with " + s.prefix
	case "mysql", "postgres":
		s.prefix = "distlock_" + strings.ReplaceAll(id, "-", "_")
		if schema, _, ok := strings.Cut(u.Text("table", ""), "."); ok {
			if strings.ContainsAny(schema, "`\"") { // the driver refuses more than that, but opens later
				return nil, fmt.Errorf("%w: the URL %s: no schema is called %q", distlock.ErrInvalid, u, schema)
			}
			s.prefix = schema + "." + s.prefix
		}
		s.set("table", s.prefix)
		s.set("create", "true")
		s.What = fmt.Sprintf("the tables %s and %[1]s_bare", s.prefix)
	case "zk":
		s.prefix = s.below(u, "/", id)
		s.What = "the node " + s.prefix
	case "etcd":
		if prefix := u.Text("prefix", ""); prefix != "" {
			s.prefix = strings.TrimSuffix(prefix, "/") + "/" + id + "/"
			s.set("prefix", s.prefix)
		} else {
			s.prefix = s.below(u, "", id) + "/"
		}
		s.What = "keys that begin with " + s.prefix
	}
	return s, nil
}

// below moves the URL's path to an element of the run, and returns it decoded. Without a
// path, the element is within the default prefix of the drivers: the role in their pages
// allows no more.
func (s *Sandbox) below(u *openurl.URL, root, id string) string {
	path := strings.Trim(u.Path(), "/")
	s.head = strings.TrimSuffix(s.head, "/")
	if path == "" {
		s.head += "/distlock/" + id
		return root + "distlock/" + id
	}
	s.head += "/" + id
	return root + path + "/" + id
}

// With returns the same sandbox with a parameter in its URL, unless it has it already.
func (s *Sandbox) With(name, value string) *Sandbox {
	own := *s
	if !own.Has(name) {
		own.set(name, value)
	}
	return &own
}

// set gives a parameter a value, whatever it had before.
func (s *Sandbox) set(name, value string) {
	var kept []string
	for pair := range strings.SplitSeq(s.query, "&") {
		if pair != "" && !isParam(pair, name) {
			kept = append(kept, pair)
		}
	}
	s.query = strings.Join(append(kept, name+"="+url.QueryEscape(value)), "&")
}

// Has reports whether the URL has a parameter.
func (s *Sandbox) Has(name string) bool {
	for pair := range strings.SplitSeq(s.query, "&") {
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

// URL returns the URL of the sandbox, password included. It leads by way of addr, a
// host:port, unless addr is empty.
func (s *Sandbox) URL(addr string) string {
	u := s.head
	if addr != "" {
		scheme, rest, _ := strings.Cut(s.head, "://")
		authority, path := rest, ""
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			authority, path = rest[:i], rest[i:]
		}
		u = scheme + "://" + authority[:strings.LastIndexByte(authority, '@')+1] + addr + path
	}
	if s.query != "" {
		u += "?" + s.query
	}
	return u
}

// defaultPorts of the stores.
var defaultPorts = map[string]string{"redis": "6379", "redlock": "6379", "mysql": "3306", "postgres": "5432", "zk": "2181", "etcd": "2379"}

// Addr returns the host:port of the server, or an error that says why traffic to it
// cannot be led through a proxy.
func (s *Sandbox) Addr() (string, error) {
	u, err := openurl.Parse(s.URL(""))
	if err != nil {
		return "", err
	}
	if s.Store == "" {
		return "", errors.New("there is no server")
	}
	hosts := u.HostsDefault(defaultPorts[s.Store])
	switch {
	case storeOf(u.Scheme()) != u.Scheme() && u.Scheme() != "redis+sentinel" && u.Scheme() != "postgresql", u.Text("tls", "off") != "off":
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
