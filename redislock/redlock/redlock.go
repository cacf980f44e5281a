// Package redlock is the driver for locks on several Redis servers that know nothing of each
// other: a lock is held by the client that has its key on a majority of them.
//
//	locker, err := redlock.Open(ctx, "redlock://host1,host2,host3,host4,host5", nil)
//
// The algorithm is known as Redlock. A lock is taken in two phases. The first takes the key on
// each server, and each answers with a token that is higher than all that it has seen. The second
// writes the highest of them to a majority, while the key is still there. So tokens rise over any
// majority, and a holder that was paused past its lease can be told from its successor. The
// published algorithm has no such token.
//
//	redlock.go  Options, Locker, the driver      open.go   URLs, and what Open finds out
//	node.go     a request to one of the servers  script.go keys; what a server does is in *.lua
//	claim.go    Try: rounds                      round.go  the two phases, and their votes
//	release.go  undo and release everywhere      renew.go  renewal and repair
//	operate.go  Inspect, List, Break             ballot.go  what a majority says
//
// The servers replicate nothing. A lock survives the loss of any minority of them, but not what
// they forget. What that means, and when to prefer a single Redis with fenced writes, or a store
// with a quorum: https://github.com/distlock-go/distlock/blob/main/docs/redis.md#redlock
package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
)

const (
	defaultPrefix = "redlock:"

	// defaultTokenMemory outlasts every difference of clocks short of an incident.
	defaultTokenMemory = time.Hour

	// defaultMaxTTL is also how long a restarted server stays away.
	defaultMaxTTL = time.Minute

	// maxMaxTTL keeps the drift that is added to a TTL to some seconds.
	maxMaxTTL = 10 * time.Minute

	// minTTL leaves a third of it, the renewal period, to be longer than a slow round trip.
	minTTL = 100 * time.Millisecond

	// minServers is the fewest that can lose one.
	minServers = 3
)

// drift is how much longer than a lease its entries last, because the clocks of the servers and
// of the holder run differently: the figure of the published algorithm.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Options configure a Locker. Nil means the defaults.
type Options struct {
	distlock.Options

	// Prefix begins every key; "redlock:" by default. Lockers with different prefixes never conflict.
	// Up to 64 visible ASCII characters other than braces.
	Prefix string

	// TokenMemory is how long a server keeps the last token of a name after it was written, at
	// about 120 bytes a name; an hour by default. After that, the clocks of the servers make tokens
	// rise.
	TokenMemory time.Duration

	// MaxTTL is the longest lease, from 1 s to 10 minutes; a minute by default. It must be the same
	// in all processes: a server that has restarted grants no locks for that long, because it may
	// have forgotten some.
	MaxTTL time.Duration

	// TrustRestarts says that no server ever forgets a lock when it restarts: it has an append-only
	// file, and syncs it with every write. Then a server takes part at once.
	TrustRestarts bool
}

// Locker is a distlock.Locker on several Redis servers. It is safe for concurrent use.
type Locker struct {
	*driver.Client
}

var (
	_ distlock.Locker  = (*Locker)(nil)
	_ driver.Driver    = (*store)(nil)
	_ driver.Claim     = (*claim)(nil)
	_ driver.Inspector = (*store)(nil)
	_ driver.Breaker   = (*store)(nil)
)

// store implements driver.Driver.
type store struct {
	nodes  []*node
	quorum int // a majority of them
	prefix string
	memory int64 // of tokens, in ms
	maxTTL time.Duration

	life  context.Context // of what runs in the background
	end   context.CancelFunc
	tasks sync.WaitGroup
}

func newStore(nodes []*node, o *Options) *store {
	d := &store{
		nodes: nodes, quorum: len(nodes)/2 + 1,
		prefix: o.Prefix, memory: endpoint.Millis(cmp.Or(o.TokenMemory, defaultTokenMemory)), maxTTL: o.MaxTTL,
	}
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

// Capabilities implements driver.Driver. A lock survives the loss of a minority of servers. But
// there is no way to tell that they keep their data over a restart, so the class is the lowest.
func (d *store) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Backend:        "redlock",
		Durability:     driver.Volatile,
		MinTTL:         minTTL,
		MaxTTL:         d.maxTTL,
		TTLGranularity: time.Millisecond,
		ExpiryLag:      drift(d.maxTTL) + 2*time.Millisecond, // Redis counts whole ms, and lets the last one pass
	}
}

// Claim implements driver.Driver.
func (d *store) Claim(r driver.Request) driver.Claim {
	return &claim{driver: d, request: r, key: keyOf(d.prefix, r.Name), longest: r.TTL, at: make([]place, len(d.nodes))}
}

// each calls f for every node, side by side, and does not wait.
func (d *store) each(f func(i int, n *node)) {
	for i, n := range d.nodes {
		d.tasks.Go(func() { f(i, n) })
	}
}

const (
	// lastRequests is how long Close waits for the servers to answer what is under way: less than
	// the second that the engine has left for Close where its own patience has ended.
	lastRequests = 500 * time.Millisecond

	// maxClose is how long Close waits for the connections.
	maxClose = time.Second
)

// Close implements io.Closer. The releases that are under way in the background go on for a moment:
// a server that hangs has its entries end with their TTL.
func (d *store) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), lastRequests)
	defer cancel()
	_, _ = driver.Detach(ctx, func() (any, error) { d.tasks.Wait(); return nil, nil })
	d.end()
	ctx, cancel = context.WithTimeout(context.Background(), maxClose)
	defer cancel()
	_, err := driver.Detach(ctx, func() (any, error) {
		var errs []error
		for _, n := range d.nodes {
			errs = append(errs, n.client.Close())
		}
		d.tasks.Wait()
		return nil, errors.Join(errs...)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("redlock: the connections are not closed after %v", maxClose)
	}
	return err
}
