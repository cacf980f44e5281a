// Package backends opens a Locker by URL or from a configuration. The choice of the
// store is made where the program runs:
//
//	locker, err := backends.Open(ctx, "redis://localhost:6379") // or mysql://, postgres://, zk://, etcd://, mem://
//
// The schemes, their parameters and the fields of Config:
// https://github.com/distlock-go/distlock/blob/main/docs/config.md
//
// This package imports every driver. To link one client library alone, or to use a client of your own, import redislock,
// mysqllock, pglock, zklock or etcdlock instead.
package backends

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/etcdlock"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/mysqllock"
	"github.com/distlock-go/distlock/pglock"
	"github.com/distlock-go/distlock/redislock"
	"github.com/distlock-go/distlock/redislock/redlock"
	"github.com/distlock-go/distlock/zklock"
)

// Default is the registry with the drivers of this module. Open and Config.Open use it.
// Programs that add schemes do it before they open anything.
var Default = newDefault()

func newDefault() *Registry {
	r := new(Registry)
	r.Register(newMemory().open, "mem")
	r.Register(func(ctx context.Context, url string, o *distlock.Options) (distlock.Locker, error) {
		return locker(redislock.Open(ctx, url, &redislock.Options{Options: *o}))
	}, "redis", "rediss", "redis+sentinel")
	r.Register(func(ctx context.Context, url string, o *distlock.Options) (distlock.Locker, error) {
		return locker(redlock.Open(ctx, url, &redlock.Options{Options: *o}))
	}, "redlock", "redlocks")
	r.Register(func(ctx context.Context, url string, o *distlock.Options) (distlock.Locker, error) {
		return locker(mysqllock.Open(ctx, url, &mysqllock.Options{Options: *o}))
	}, "mysql", "mysqls")
	r.Register(func(ctx context.Context, url string, o *distlock.Options) (distlock.Locker, error) {
		return locker(pglock.Open(ctx, url, &pglock.Options{Options: *o}))
	}, "postgres", "postgresql")
	r.Register(func(ctx context.Context, url string, o *distlock.Options) (distlock.Locker, error) {
		return locker(zklock.Open(ctx, url, &zklock.Options{Options: *o}))
	}, "zk", "zks")
	r.Register(func(ctx context.Context, url string, o *distlock.Options) (distlock.Locker, error) {
		return locker(etcdlock.Open(ctx, url, &etcdlock.Options{Options: *o}))
	}, "etcd", "etcds")
	return r
}

// locker keeps a nil pointer of a driver from becoming a non-nil Locker.
func locker[L distlock.Locker](l L, err error) (distlock.Locker, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Open opens a Locker on the backend that url names, with the Default registry. It connects and checks, bounded by ctx, and
// by ten seconds and dial_timeout: an unreachable backend fails here, also one that has not started yet, so a service that
// may start before its store calls it again. A URL with any detail that is not understood fails with distlock.ErrInvalid
// before any server is asked. No error shows a password.
//
// The caller closes the Locker. Close also closes the connections that Open has made.
func Open(ctx context.Context, url string, opts ...Option) (distlock.Locker, error) {
	return Default.Open(ctx, Config{URL: url}, opts...)
}

// Option is what the program says rather than its configuration.
type Option func(*distlock.Options)

// TTL sets the lease of locks that do not ask for another. A different one in the
// configuration is an error: neither overrides the other silently.
func TTL(d time.Duration) Option {
	return func(opts *distlock.Options) { opts.TTL = d }
}

// Holder sets the text that Inspect shows; the rules are those of TTL.
func Holder(text string) Option {
	return func(opts *distlock.Options) { opts.Holder = text }
}

// Observer has o told what happens to the locks.
func Observer(o *distlock.Observer) Option {
	return func(opts *distlock.Options) { opts.Observer = o }
}

// Logger has l receive what callers cannot see from results.
func Logger(l *slog.Logger) Option {
	return func(opts *distlock.Options) { opts.Logger = l }
}

// Opener opens a Locker for a URL with a scheme it was registered for. It must not
// change o. o is never nil. An Opener must fail where it does not understand the URL,
// and must not show a password in an error. ctx bounds the call only.
type Opener func(ctx context.Context, url string, o *distlock.Options) (distlock.Locker, error)

// Registry maps schemes to Openers. The zero value serves none. Open may be called
// concurrently, Register may not.
type Registry struct {
	openers map[string]Opener
}

// Register adds the schemes of a backend. It panics if one of them is taken, or is not
// in lower case: that mistake is in the program, not in its input.
func (r *Registry) Register(open Opener, schemes ...string) {
	if r.openers == nil {
		r.openers = make(map[string]Opener)
	}
	for _, s := range schemes {
		if s == "" || openurl.Scheme(s+"://") != s {
			panic(fmt.Sprintf("distlock/backends: %q is not a scheme in lower case", s))
		}
		if _, taken := r.openers[s]; taken {
			panic(fmt.Sprintf("distlock/backends: the scheme %q is registered twice", s))
		}
		r.openers[s] = open
	}
}

// Schemes returns the registered schemes, sorted.
func (r *Registry) Schemes() []string {
	return slices.Sorted(maps.Keys(r.openers))
}

// Open is Config.Open with the schemes of r.
func (r *Registry) Open(ctx context.Context, c Config, opts ...Option) (_ distlock.Locker, err error) {
	if ctx == nil {
		panic("distlock: open with a nil context: context.Background() is one that never ends")
	}
	defer func() { err = openurl.Named(c.URL, err) }()
	if err := c.check(); err != nil {
		return nil, opened(err)
	}
	open, ok := r.openers[openurl.Scheme(c.URL)]
	if !ok {
		what := "does not begin with scheme://; the schemes are"
		if c.URL != strings.TrimLeftFunc(c.URL, unicode.IsSpace) {
			what = "begins with a space or a line break, instead of one of the schemes"
		}
		if openurl.Scheme(c.URL) != "" {
			what = "has none of the known schemes:"
		}
		return nil, opened(fmt.Errorf("%w: the URL %s %s %s%s",
			distlock.ErrInvalid, openurl.Shown(c.URL), what, strings.Join(r.Schemes(), ", "), r.meant(c.URL)))
	}
	o := distlock.Options{TTL: c.TTL.Duration(), Holder: c.Holder, TokenBase: c.TokenBase}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if err := c.contradicts(o); err != nil {
		return nil, opened(err)
	}
	l, err := open(ctx, c.URL, &o)
	if err != nil {
		return nil, err
	}
	if err := unmet(l, c.Require); err != nil {
		l.Close() // nothing is held, and the error to tell is the other one
		return nil, opened(fmt.Errorf("%w: it %w", distlock.ErrUnsupported, err))
	}
	return l, nil
}

// otherNames are the schemes that people write for ours.
var otherNames = map[string]string{
	"zookeeper": "zk", "mariadb": "mysql", "pg": "postgres", "pgsql": "postgres", "valkey": "redis", "valkeys": "rediss", "redis+tls": "rediss", "memory": "mem", "sentinel": "redis+sentinel",
}

// ports are where the servers listen by default.
var ports = map[string]string{"6379": "redis", "3306": "mysql", "5432": "postgres", "2181": "zk", "2379": "etcd", "26379": "redis+sentinel"}

// meant guesses the scheme that was meant, and words it as the end of an error. It
// repeats nothing of the URL but a scheme: any other part may be a password.
func (r *Registry) meant(url string) string {
	var guesses []string
	switch scheme := openurl.Scheme(url); {
	case otherNames[scheme] != "":
		guesses = []string{otherNames[scheme]}
	case scheme != "":
		guesses = openurl.Nearest(scheme, r.Schemes())
	default:
		_, port, _ := strings.Cut(url, ":")
		port, _, _ = strings.Cut(port, "/")
		guesses = []string{ports[port]} // no opener is registered for ""
	}
	guesses = slices.DeleteFunc(guesses, func(s string) bool { return r.openers[s] == nil })
	if len(guesses) == 0 {
		return ""
	}
	return " (did you mean " + strings.Join(guesses, ":// or ") + "://?)"
}

// opened words an error like those of the drivers.
func opened(err error) error { return &distlock.Error{Op: "open", Err: err} }
