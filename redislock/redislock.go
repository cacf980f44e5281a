// Package redislock is the driver for locks on Redis and what speaks its protocol: a
// single server, one behind Sentinel, or a cluster.
//
//	locker, err := redislock.New(client, nil)              // on your own client
//	locker, err := redislock.Open(ctx, "redis://host", nil) // or on one of its own
//
// A lock is a key that expires. Acquiring a free one is one request, and so is
// releasing it; all decisions fall in scripts on the server, by its clock. Waiters
// queue on the server, first come, first served over all processes, and a release makes
// the first of them the holder, and wakes up no other.
//
// Redis replicates asynchronously: a failover can lose a lock that was granted a
// moment ago, and so can a crash without an append-only file. Where that matters,
// fence your writes with Lock.Token, or choose a backend with a quorum. The
// details, and what to set on the server:
// https://github.com/distlock-go/distlock/blob/main/docs/redis.md
package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
	"github.com/distlock-go/distlock/redislock/internal/names"
)

const (
	defaultPrefix = "distlock:"

	// defaultTokenMemory is longer than a clock is set back in normal operation.
	defaultTokenMemory = time.Hour

	// minTTL leaves a third of it, the renewal period, to be longer than a slow
	// round trip.
	minTTL = 100 * time.Millisecond
)

// Options configure a Locker. Nil means the defaults.
type Options struct {
	distlock.Options

	// Prefix begins every key and channel; "distlock:" by default. Lockers with
	// different prefixes never conflict. Up to 64 visible ASCII characters other than
	// braces.
	Prefix string

	// TokenMemory is how long the last token of a name is kept after it was
	// granted, at about 120 bytes a name; an hour by default. Tokens rise as long
	// as the server's clock does; the memory makes them rise also when the clock
	// goes back, by up to this much.
	TokenMemory time.Duration

	// WaitReplicas is how many replicas must have a grant or a renewal before it counts; 0
	// by default. A grant that fewer of them acknowledge within a second is undone, and
	// Lock and TryLock fail; a Lock that has waited asks again for its TTL, a minute at most.
	// A renewal that fewer acknowledge is repeated, and the lock ends at its Deadline if none
	// succeeds. This is no consensus: a failover may still choose a replica without the lock.
	WaitReplicas int
}

// Locker is a distlock.Locker on Redis. It is safe for concurrent use.
type Locker struct {
	*driver.Client
}

// Lock is a distlock.Lock on Redis. It is safe for concurrent use.
type Lock struct {
	*driver.Handle
	key string
}

// Key returns the key that exists while the lock is held, for scripts and operators
// that want to look at it. Its value starts with the owner, a random text of this
// acquisition, and the token; do not write to it.
func (l *Lock) Key() string { return l.key }

var (
	_ distlock.Locker    = (*Locker)(nil)
	_ distlock.Lock      = (*Lock)(nil)
	_ driver.Driver      = (*store)(nil)
	_ driver.Claim       = (*claim)(nil)
	_ driver.LockWrapper = (*store)(nil)
	_ driver.Inspector   = (*store)(nil)
	_ driver.Breaker     = (*store)(nil)
)

// New returns a Locker on client, a *redis.Client, also one made by
// redis.NewFailoverClient, or a *redis.ClusterClient. It sends no request, so what Open
// finds out shows in the first calls. Closing the Locker leaves the client open. While
// calls wait, the Locker has one connection to the server beside the client's pool; on a
// cluster, one to each.
//
// The client should have ContextTimeoutEnabled set, or its requests outlive their
// contexts, though the calls of the Locker do not; and timeouts well below a third
// of the TTL. Nothing else may SELECT another database on its connections: the pool lends
// them as they were left. New fails with distlock.ErrInvalid if the client is of another
// type or the options are not allowed.
func New(client redis.UniversalClient, o *Options) (*Locker, error) {
	opts := o.clone()
	d, err := newStore(client, opts, false)
	if err != nil {
		return nil, opened(err)
	}
	return newLocker(d, opts)
}

// clone returns a copy with a Logger.
func (o *Options) clone() *Options {
	if o == nil {
		o = new(Options)
	}
	c := *o
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &c
}

func newLocker(d *store, o *Options) (*Locker, error) {
	c, err := driver.New(d, &o.Options)
	if err != nil {
		return nil, err
	}
	return &Locker{c}, nil
}

func newStore(client redis.UniversalClient, o *Options, owned bool) (*store, error) {
	d := &store{
		client:  client,
		owned:   owned,
		prefix:  cmp.Or(o.Prefix, defaultPrefix),
		memory:  endpoint.Millis(cmp.Or(o.TokenMemory, defaultTokenMemory)),
		publish: "publish",
	}
	if client == (*redis.Client)(nil) || client == (*redis.ClusterClient)(nil) {
		return nil, fmt.Errorf("%w: the %T is nil", distlock.ErrInvalid, client)
	}
	var heedsContexts bool
	var resends int
	var read time.Duration
	switch c := client.(type) {
	case *redis.Client:
		heedsContexts, resends, read = c.Options().ContextTimeoutEnabled, c.Options().MaxRetries, c.Options().ReadTimeout
	case *redis.ClusterClient:
		heedsContexts, resends, read = c.Options().ContextTimeoutEnabled, c.Options().MaxRedirects, c.Options().ReadTimeout
		// Sharded messages stay within their shard; others would go to every
		// server of the cluster.
		d.cluster, d.publish = c, "spublish"
	default:
		// A Ring keeps locks nowhere for certain: the server of a name depends on the
		// servers that each client can reach.
		return nil, fmt.Errorf("%w: the client is a %T, allowed are *redis.Client and *redis.ClusterClient",
			distlock.ErrInvalid, client)
	}
	if err := names.CheckPrefix(d.prefix); err != nil {
		return nil, err
	}
	if o.TokenMemory < 0 || o.TokenMemory > distlock.MaxTTL {
		return nil, fmt.Errorf("%w: TokenMemory is %v, allowed are 0 to %v",
			distlock.ErrInvalid, o.TokenMemory, distlock.MaxTTL)
	}
	if o.WaitReplicas < 0 || o.WaitReplicas > maxReplicas {
		return nil, fmt.Errorf("%w: WaitReplicas is %d, allowed are 0 to %d",
			distlock.ErrInvalid, o.WaitReplicas, maxReplicas)
	}
	if !heedsContexts {
		o.Logger.Warn("the Redis client does not have ContextTimeoutEnabled: its requests may outlive their contexts")
	}
	d.replicas = replicas{o.WaitReplicas, maxAck(read)}
	d.sender = endpoint.NewSender(client, resends)
	d.subscriber = newSubscriber(d, o.Logger)
	return d, nil
}

// store implements driver.Driver.
type store struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // client, if it is one of a cluster; else nil
	owned   bool                 // client is closed with the driver
	prefix  string
	memory  int64       // of tokens, in ms
	publish string      // the command
	split   atomic.Bool // a script cannot have keys of several names

	replicas   replicas
	sender     *endpoint.Sender
	subscriber *subscriber
}

// Capabilities implements driver.Driver. Redis can be set to keep what it has
// acknowledged over a restart, but there is no way to tell that it is; so the locks
// are volatile.
func (d *store) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Backend:        "redis",
		Fair:           true,
		Push:           true,
		Durability:     driver.Volatile,
		MinTTL:         minTTL,
		TTLGranularity: time.Millisecond,
		ExpiryLag:      2 * time.Millisecond, // Redis counts whole ms, and lets the last one pass
	}
}

// maxClose is how long Close waits for the client library. It may be connecting to a server that
// hangs, and cannot be interrupted.
const maxClose = 2 * time.Second

// Close implements io.Closer. What has not ended by then ends with its timeout.
func (d *store) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), maxClose)
	defer cancel()
	_, err := driver.Detach(ctx, func() (_ any, err error) {
		d.subscriber.dropAll(true) // first, since it uses the client
		d.sender.Close()
		if d.owned {
			err = d.client.Close()
		}
		d.subscriber.running.Wait() // last, for it may be for ever, and the client is to be closed
		return nil, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("redislock: the connections are not closed after %v", maxClose)
	}
	return err
}
