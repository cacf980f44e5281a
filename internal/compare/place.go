package compare

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/openurl"
)

// place is the part of a store that belongs to one run and to nobody else: keys with
// a random prefix, a table or a node of a random name. It lies within what the URL
// names, because that may be all that its user has rights on.
type place struct {
	store  string // "redis", "mysql", "zk", "etcd"; empty for what has no servers or is not known here
	head   string // the URL up to its query: scheme, user, hosts, path
	query  string
	what   string // "keys that begin with …"
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

// newPlace returns the place for a run in the store that rawURL names.
func newPlace(rawURL string) (*place, error) {
	u, err := openurl.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	p := &place{store: storeOf(u.Scheme())}
	p.head, p.query, _ = strings.Cut(rawURL, "?")
	if p.store == "" {
		return p, nil
	}
	id := randomID()
	switch p.store {
	case "redis":
		p.prefix = u.Text("prefix", "distlock:") + "compare-" + id + ":"
		if len(p.prefix) > maxRedisPrefix {
			return nil, fmt.Errorf("%w: the URL %s: its prefix is too long for the run to add its own to it: with that it has %d bytes, allowed are %d",
				distlock.ErrInvalid, u, len(p.prefix), maxRedisPrefix)
		}
		p.set("prefix", p.prefix)
		p.what = "keys that begin with " + p.prefix
	case "mysql":
		p.prefix = "distlock_compare_" + id
		if schema, _, ok := strings.Cut(u.Text("table", ""), "."); ok {
			if strings.Contains(schema, "`") { // the driver refuses more than that, but opens later
				return nil, fmt.Errorf("%w: the URL %s: no schema is called %q", distlock.ErrInvalid, u, schema)
			}
			p.prefix = schema + "." + p.prefix
		}
		p.set("table", p.prefix)
		p.set("create", "true")
		p.what = fmt.Sprintf("the tables %s and %[1]s_bare", p.prefix)
	case "zk":
		p.prefix = p.below(u, "/", id)
		p.what = "the node " + p.prefix
	case "etcd":
		if prefix := u.Text("prefix", ""); prefix != "" {
			p.prefix = strings.TrimSuffix(prefix, "/") + "/compare-" + id + "/"
			p.set("prefix", p.prefix)
		} else {
			p.prefix = p.below(u, "", id) + "/"
		}
		p.what = "keys that begin with " + p.prefix
	}
	return p, nil
}

// below moves the URL's path to an element of the run, and returns it decoded.
func (p *place) below(u *openurl.URL, root, id string) string {
	path := strings.Trim(u.Path(), "/")
	p.head = strings.TrimSuffix(p.head, "/")
	if path == "" {
		p.head += "/distlock-compare-" + id
		return root + "distlock-compare-" + id
	}
	p.head += "/compare-" + id
	return root + path + "/compare-" + id
}

// set gives a parameter a value, whatever it had before.
func (p *place) set(name, value string) {
	var kept []string
	for pair := range strings.SplitSeq(p.query, "&") {
		if pair != "" && !isParam(pair, name) {
			kept = append(kept, pair)
		}
	}
	p.query = strings.Join(append(kept, name+"="+url.QueryEscape(value)), "&")
}

func (p *place) has(name string) bool {
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

// url returns the URL of the place, password included; by way of addr, a host:port,
// unless that is empty.
func (p *place) url(addr string) string {
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

// addr returns the host:port of the server, or an error that says why traffic to it
// cannot be led through a proxy.
func (p *place) addr() (string, error) {
	u, err := openurl.Parse(p.url(""))
	if err != nil {
		return "", err
	}
	if p.store == "" {
		return "", errors.New("there is no server")
	}
	hosts := u.HostsDefault(defaultPorts[p.store])
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

func randomID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return hex.EncodeToString(b[:])
}

// NewTarget returns the target behind a URL, confined to a place of its own: a
// prefix, table or node with a random name, which Clean removes. Nothing is sent
// until the run begins. The TTL is what the locks of the run will ask for.
func NewTarget(name, rawURL, origin, version string, ttl time.Duration) (Target, error) {
	p, err := newPlace(rawURL)
	if err != nil {
		return Target{}, err
	}
	// Told when it opens, because the session of ZooKeeper must suit it; unless the
	// URL tells another.
	config := backends.Config{TTL: backends.Duration(ttl)}
	if p.has("ttl") {
		config.TTL = 0
	}
	t := Target{Name: name, Store: p.store, URL: openurl.Redact(rawURL), Origin: origin, Version: version, Place: p.what}
	t.Addr, t.NoRoute = p.addr()
	t.Locate = p.url
	s := &shared{place: p}
	t.Rig = newRig(s)
	t.OpenVia = func(ctx context.Context, via string) (distlock.Locker, error) {
		c := config
		c.URL = p.url(via)
		l, err := c.Open(ctx)
		if err == nil {
			s.used.Store(true)
		}
		return l, err
	}
	t.Open = func(ctx context.Context) (distlock.Locker, error) { return t.OpenVia(ctx, "") }
	if p.store == "" {
		t.Version = cmp.Or(version, Version()) // it is part of the program
		return t, nil
	}
	t.Bare, t.Remove = s.open, s.remove
	return t, nil
}

// shared is the one connection to a place besides those of the Lockers. What makes a
// place must also remove it: only the maker knows what was there before.
type shared struct {
	place *place
	used  atomic.Bool // something may be there
	mu    sync.Mutex
	bare  Bare
}

// errUnused says that there is nothing to remove.
var errUnused = errors.New("it could not be opened")

func (s *shared) open(ctx context.Context) (Bare, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bare != nil {
		return s.bare, nil
	}
	b, err := openBare(ctx, s.place)
	if err != nil {
		return nil, fmt.Errorf("the bare client: %w", err)
	}
	s.bare = b
	if s.place.store == "mysql" || s.place.store == "zk" { // the others connect when they are used
		s.used.Store(true)
	}
	return b, nil
}

func (s *shared) remove(ctx context.Context) error {
	used := s.used.Load()
	b := s.take()
	if !used {
		if b != nil {
			_ = b.Close() // it has not been used either
		}
		return errUnused
	}
	if b == nil {
		var err error
		if b, err = s.open(ctx); err != nil {
			return err
		}
		s.take()
	}
	return errors.Join(b.Remove(ctx), b.Close())
}

// take returns what open has opened, and forgets it.
func (s *shared) take() Bare {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bare
	s.bare = nil
	return b
}

// removePatience is for one store to remove a place: a handful of requests, or many
// where a large database must be searched for keys.
const removePatience = 10 * time.Second

// Clean removes what the run has made on the targets, all at the same time, and notes
// in the report what that was and whether it is gone; what could not be removed counts
// as a failure. Nothing of the run may use the targets any more. It works although the
// context of the run has ended.
func Clean(targets []Target, r *Report) {
	var wg sync.WaitGroup
	for i, t := range targets {
		if t.Remove == nil {
			continue
		}
		b := r.Backends[i]
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), removePatience)
			defer cancel()
			switch err := t.Remove(ctx); {
			case errors.Is(err, errUnused):
				b.Touched = "nothing: " + err.Error()
			case err != nil:
				b.Touched = fmt.Sprintf("only %s (NOT removed)", t.Place)
				b.Failed["clean"] = fmt.Sprintf("the run has left %s behind: %v", t.Place, err)
			default:
				b.Touched = fmt.Sprintf("only %s (removed)", t.Place)
			}
		})
	}
	wg.Wait()
}
