package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/distlock-go/distlock"
)

const (
	// terminator ends a name within a key. Neither prefixes nor encoded names
	// contain it, so the keys of one name are exactly those that begin with prefix,
	// name and terminator.
	terminator = "!"

	// expiryLag is what the key of a dead holder may outlast its TTL by: the
	// surplus of a shared lease (2 s), what rounding up to whole seconds and the
	// server's minimum add (1 s), half a second until the server looks for leases
	// that have expired, and as much for revoking them.
	expiryLag = 4 * time.Second

	// closePatience bounds the requests of Close.
	closePatience = 5 * time.Second
)

// driver makes claims on one cluster.
type driver struct {
	client  *clientv3.Client
	granter pb.LeaseClient // because clientv3 does not let the caller choose the ID of a lease
	prefix  string
	keys    *keys
	owned   bool // the client is closed with the driver

	idle          *idleWatches
	ownWatchDelay time.Duration

	mu     sync.Mutex
	leases []*lease // the shared ones that are not known to be dead
}

var (
	_ distlock.Driver       = (*driver)(nil)
	_ distlock.BatchRenewer = (*driver)(nil)
	_ distlock.LockWrapper  = (*driver)(nil)
	_ distlock.Inspector    = (*driver)(nil)
	_ distlock.Breaker      = (*driver)(nil)
)

func newDriver(client *clientv3.Client, prefix string, owned bool) (*driver, error) {
	prefix, err := checkPrefix(prefix)
	if err != nil {
		return nil, err
	}
	if client.ActiveConnection() == nil {
		return nil, fmt.Errorf("%w: the client has no connection, allowed is one made by clientv3.New", distlock.ErrInvalid)
	}
	return &driver{
		client:  client,
		granter: clientv3.RetryLeaseClient(client),
		prefix:  prefix,
		keys:    newKeys(),
		owned:   owned,

		idle:          &idleWatches{period: idlePeriod, byKey: make(map[string]idleWatch)},
		ownWatchDelay: ownWatchDelay,
	}, nil
}

// Capabilities implements distlock.Driver.
func (d *driver) Capabilities() distlock.Capabilities {
	return distlock.Capabilities{
		Backend:        "etcd",
		Fair:           true,
		Push:           true,
		Durability:     distlock.Quorum,
		MinTTL:         time.Second,
		TTLGranularity: time.Second,
		ExpiryLag:      expiryLag,
	}
}

// Claim implements distlock.Driver.
func (d *driver) Claim(r distlock.Request) distlock.Claim {
	r.Owner = "" // a key is random without it
	return &claim{driver: d, request: r, queue: d.queue(r.Name)}
}

// queue returns what the keys of all claims on name begin with. PathEscape works
// byte by byte and escapes the slash, the terminator and the percent sign, so
// different names have different queues, and none begins with another.
func (d *driver) queue(name string) string { return d.prefix + url.PathEscape(name) + terminator }

// name returns the name that a key stands for; false if it is none of ours.
func (d *driver) name(key string) (string, bool) {
	escaped, _, ok := strings.Cut(strings.TrimPrefix(key, d.prefix), terminator)
	name, err := url.PathUnescape(escaped)
	return name, ok && err == nil && url.PathEscape(name) == escaped
}

// WrapLock implements distlock.LockWrapper.
func (d *driver) WrapLock(h *distlock.Handle, c distlock.Claim) distlock.Lock {
	return &Lock{Handle: h, key: c.(*claim).key}
}

// lease returns a lease that gives at least ttl, with key as a member: one for the
// key alone for a fixed term, which must end on its own, else a shared one.
func (d *driver) lease(key string, ttl time.Duration, fixed bool) *lease {
	seconds := int64((ttl + time.Second - 1) / time.Second)
	if fixed {
		l := newLease(d, seconds)
		l.join(key)
		return l
	}
	seconds += surplus(seconds)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leases = slices.DeleteFunc(d.leases, (*lease).over)
	for _, l := range d.leases {
		if l.asked == seconds && l.join(key) {
			return l
		}
	}
	l := newLease(d, seconds)
	l.join(key)
	l.shared = true
	d.leases = append(d.leases, l)
	return l
}

// surplus is how many seconds longer a shared lease is asked for than the locks on
// it need. While that much has not passed since the last keep-alive, a lock joins
// the lease without a request; but a crashed holder blocks its names for as much
// longer. At two seconds the busiest Locker sends one keep-alive in two seconds.
func surplus(seconds int64) int64 { return min((seconds+2)/3, 2) }

// RenewBatch implements distlock.BatchRenewer: one keep-alive and one listing of
// the keys for each lease, however many claims live by it. The listing says which
// claims still have their keys. Large batches come in pieces, close together, and
// the pieces share the requests if the listing is no older than a thirtieth of the
// TTL, a tenth of the renewal period.
func (d *driver) RenewBatch(ctx context.Context, batch []distlock.Renewal) {
	began := time.Now()
	groups := make(map[*lease][]*distlock.Renewal)
	for i := range batch {
		r := &batch[i]
		c := r.Claim.(*claim)
		if c.next != nil || !c.lease.gives(r.TTL) {
			r.Grant, r.Err = c.Renew(ctx, r.TTL)
			continue
		}
		groups[c.lease] = append(groups[c.lease], r)
	}
	for l, group := range groups {
		ttl := group[0].TTL
		for _, r := range group {
			ttl = max(ttl, r.TTL)
		}
		err := l.ensure(ctx, began.Add(ttl), began.Add(-min(ttl/30, time.Second)))
		for _, r := range group {
			r.Grant, r.Err = r.Claim.(*claim).renewed(ctx, err)
		}
	}
}

// Close revokes the shared leases, on which nothing is left any more. Those that
// it cannot revoke end with their TTL.
func (d *driver) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	d.idle.close()
	d.mu.Lock()
	leases := slices.DeleteFunc(d.leases, (*lease).over)
	d.leases = nil
	d.mu.Unlock()
	var errs []error
	for _, l := range leases {
		if err := l.revoke(ctx); err != nil {
			errs = append(errs, err)
			break // one stands for all: the servers did not answer
		}
	}
	if d.owned {
		errs = append(errs, d.client.Close())
	}
	return errors.Join(errs...)
}

// mayApply reports whether a write that has failed with err may have been applied,
// or may still be. What the server refuses, it has not applied, unless it has only
// stopped waiting, or lost sight of the request.
func mayApply(err error) bool {
	var refusal rpctypes.EtcdError
	if !errors.As(err, &refusal) {
		return err != nil
	}
	switch refusal.Code() {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Unknown:
		return true
	}
	return false
}
