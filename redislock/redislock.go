// Package redislock is the driver for locks on Redis and what speaks its protocol: a
// single server, one behind Sentinel, or a cluster.
//
//	locker, err := redislock.New(client, nil)              // on your own client
//	locker, err := redislock.Open(ctx, "redis://host", nil) // or on one of its own
//
// A lock is a key that expires. Taking a free one is one request, and so is
// releasing it; all decisions fall in scripts on the server, by its clock. Waiters
// stand in a queue on the server, first come, first served over all processes, and a
// release gives the lock to the first of them, and wakes nobody else.
//
// Redis replicates asynchronously: a fail-over can lose a lock that was granted a
// moment ago, and so can a crash without an append-only file. Where that matters,
// fence your writes with Lock.Token, or choose a backend with a quorum. docs/redis.md
// has the details, and what to set on the server.
package redislock

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
)

const (
	defaultPrefix = "distlock:"

	// defaultTokenMemory outlasts every correction of a clock that is not itself
	// an incident.
	defaultTokenMemory = time.Hour

	// minTTL leaves a third of it, the renewal period, to be longer than a slow
	// round trip.
	minTTL = 100 * time.Millisecond
)

// Options configure a Locker. Nil means the defaults.
type Options struct {
	distlock.Options

	// Prefix begins every key and channel; "distlock:" by default. Lockers with
	// different prefixes never meet. Up to 64 visible ASCII characters other than
	// braces.
	Prefix string

	// TokenMemory is how long the last token of a name is kept after it was
	// granted, at about 120 bytes a name; an hour by default. Tokens rise as long
	// as the server's clock does; the memory makes them rise also when the clock
	// goes back, by up to this much.
	TokenMemory time.Duration
}

// Locker is a distlock.Locker on Redis. It is safe for concurrent use.
type Locker struct {
	*distlock.Client
}

// Lock is a distlock.Lock on Redis. It is safe for concurrent use.
type Lock struct {
	*distlock.Handle
	key string
}

// Key returns the key that exists while the lock is held, for scripts and operators
// that want to look at it. Its value starts with the owner, a random text of this
// acquisition, and the token; do not write to it.
func (l *Lock) Key() string { return l.key }

var (
	_ distlock.Locker       = (*Locker)(nil)
	_ distlock.Lock         = (*Lock)(nil)
	_ distlock.Driver       = (*driver)(nil)
	_ distlock.Claim        = (*claim)(nil)
	_ distlock.BatchRenewer = (*driver)(nil)
	_ distlock.LockWrapper  = (*driver)(nil)
	_ distlock.Inspector    = (*driver)(nil)
	_ distlock.Breaker      = (*driver)(nil)
)

// New returns a Locker on client, a *redis.Client, also one made by
// redis.NewFailoverClient, or a *redis.ClusterClient. It sends no request. Closing
// the Locker leaves the client open. While calls wait, the Locker has one
// connection to the server beside the client's pool; on a cluster, one to each.
//
// The client should have ContextTimeoutEnabled set, or its requests outlive their
// contexts, though the calls of the Locker do not; and time-outs well below a third
// of the TTL. New fails with distlock.ErrInvalid if the client is of another type or the
// options are not allowed.
func New(client redis.UniversalClient, o *Options) (*Locker, error) {
	return newLocker(client, o, false)
}

func newLocker(client redis.UniversalClient, o *Options, owned bool) (*Locker, error) {
	if o == nil {
		o = new(Options)
	}
	d, err := newDriver(client, o, owned)
	if err != nil {
		return nil, opened(err)
	}
	c, err := distlock.New(d, &o.Options)
	if err != nil {
		return nil, err
	}
	return &Locker{c}, nil
}

func newDriver(client redis.UniversalClient, o *Options, owned bool) (*driver, error) {
	d := &driver{
		client:  client,
		owned:   owned,
		prefix:  cmp.Or(o.Prefix, defaultPrefix),
		memory:  millis(cmp.Or(o.TokenMemory, defaultTokenMemory)),
		publish: "publish",
	}
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	var heedsContexts bool
	switch c := client.(type) {
	case *redis.Client:
		heedsContexts = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		heedsContexts = c.Options().ContextTimeoutEnabled
		// Sharded messages stay within their shard; others would go to every
		// server of the cluster.
		d.cluster, d.publish = c, "spublish"
	default:
		// A Ring keeps locks nowhere for certain: which server has a name
		// depends on which ones each client can reach.
		return nil, fmt.Errorf("%w: the client is a %T, allowed are *redis.Client and *redis.ClusterClient",
			distlock.ErrInvalid, client)
	}
	if err := checkPrefix(d.prefix); err != nil {
		return nil, err
	}
	if o.TokenMemory < 0 || o.TokenMemory > distlock.MaxTTL {
		return nil, fmt.Errorf("%w: TokenMemory is %v, allowed are 0 to %v",
			distlock.ErrInvalid, o.TokenMemory, distlock.MaxTTL)
	}
	if !heedsContexts {
		logger.Warn("the Redis client does not have ContextTimeoutEnabled: its requests may outlive their contexts")
	}
	d.convoy.client, d.convoy.halt = client, maxHalt
	d.bell = newBell(d, logger)
	return d, nil
}

// driver implements distlock.Driver.
type driver struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // client, if it is one of a cluster; else nil
	owned   bool                 // client is closed with the driver
	prefix  string
	memory  int64  // of tokens, in ms
	publish string // the command
	bell    *bell
	convoy  convoy
	apart   atomic.Bool // a script cannot have keys of several names
}

// Capabilities implements distlock.Driver. Redis can be set to keep what it has
// acknowledged over a restart, but there is no way to tell that it is; so the locks
// are volatile.
func (d *driver) Capabilities() distlock.Capabilities {
	return distlock.Capabilities{
		Backend:        "redis",
		Fair:           true,
		Push:           true,
		Durability:     distlock.Volatile,
		MinTTL:         minTTL,
		TTLGranularity: time.Millisecond,
		ExpiryLag:      2 * time.Millisecond, // Redis counts whole ones, and lets the last one pass
	}
}

// Claim implements distlock.Driver.
func (d *driver) Claim(r distlock.Request) distlock.Claim {
	c := &claim{driver: d, request: r, key: keyOf(d.prefix, r.Name)}
	if !r.NoWait {
		c.channel = d.bell.channelFor(c.key)
	}
	return c
}

// WrapLock implements distlock.LockWrapper.
func (d *driver) WrapLock(h *distlock.Handle, c distlock.Claim) distlock.Lock {
	return &Lock{h, c.(*claim).key.entry()}
}

// Close implements io.Closer.
func (d *driver) Close() error {
	d.bell.close()
	if d.owned {
		return d.client.Close()
	}
	return nil
}
