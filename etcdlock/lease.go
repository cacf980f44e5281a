package etcdlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/distlock-go/distlock"
)

const (
	// maxMembers and maxBytes, the sum of the lengths of the keys, bound the listing
	// of a lease, and what the servers have to delete in one step when it ends: other
	// requests wait meanwhile, 6 µs for each key where this was measured. So ten
	// thousand locks are one lease, and its end holds others up by a tenth of a second.
	maxMembers = 16384
	maxBytes   = 1 << 20

	// maxSweep is how many keys that nobody wants one listing removes; the next
	// one goes on.
	maxSweep = 16
)

// lease is a lease of etcd that this driver has asked for, and when it was last
// kept alive. The keep-alive channel of the client library is of no use here: it
// stamps replies, not requests, and it closes up to a second after the end.
type lease struct {
	driver *driver
	id     clientv3.LeaseID
	asked  int64 // seconds
	shared bool
	turn   chan struct{} // holds one element while a request about the lease itself is in flight

	mu      sync.Mutex
	ttl     time.Duration // as granted; 0 until it is known
	sent    time.Time     // before the last confirmed grant or keep-alive was sent
	listed  time.Time     // before the last listing of the keys was sent
	dead    bool          // the server has said that it is gone
	suspect bool          // a write may still come that puts a key here which nobody wants

	// members are the keys that are wanted on the lease, with the last instant at
	// which each is known to have been there; zero before the first.
	members map[string]*time.Time
	bytes   int // of their keys
}

// newLease returns a lease that has still to be granted. With an ID that the client
// chooses, the library and we can repeat the grant without leaving a second lease.
func newLease(d *driver, seconds int64) *lease {
	return &lease{
		driver:  d,
		id:      clientv3.LeaseID(1 + rand.Int64N(1<<63-1)),
		asked:   seconds,
		turn:    make(chan struct{}, 1),
		members: make(map[string]*time.Time),
	}
}

// ensure makes the lease last until an instant, and its keys be listed after
// another (the zero Time if that does not matter), by requests only where they are
// needed. It returns rpctypes.ErrLeaseNotFound if the lease is gone.
func (l *lease) ensure(ctx context.Context, until, listed time.Time) error {
	renew, list, err := l.lacks(until, listed)
	if err != nil || !renew && !list {
		return err
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	renew, list, err = l.lacks(until, listed) // another call may have seen to it
	if err == nil && renew {
		err = l.renew(ctx)
	}
	if err == nil && list {
		err = l.list(ctx)
	}
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		l.die()
	}
	return err
}

func (l *lease) lacks(until, listed time.Time) (renew, list bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return false, false, rpctypes.ErrLeaseNotFound
	}
	renew = l.sent.Add(l.ttl).Before(until)
	return renew, l.listed.Before(listed) || renew && l.suspect, nil
}

// renew grants the lease, or keeps it alive. The turn has been taken.
func (l *lease) renew(ctx context.Context) error {
	sent := time.Now()
	if granted := l.gives(1); !granted {
		r := &pb.LeaseGrantRequest{ID: int64(l.id), TTL: l.asked}
		resp, err := l.driver.granter.LeaseGrant(ctx, r, grpc.WaitForReady(true))
		if err == nil {
			l.confirm(sent, resp.TTL)
			return nil
		}
		if err = clientv3.ContextError(ctx, err); !errors.Is(err, rpctypes.ErrLeaseExist) {
			return err
		}
		// An earlier request, whose reply was lost, has granted it; the keep-alive
		// tells what it has granted.
		sent = time.Now()
	}
	resp, err := l.driver.client.KeepAliveOnce(ctx, l.id)
	if err != nil {
		return err
	}
	l.confirm(sent, resp.TTL)
	return nil
}

func (l *lease) confirm(sent time.Time, seconds int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent, l.ttl = sent, time.Duration(seconds)*time.Second
}

// list asks for the keys on the lease and notes which members are there.
//
// What is there and no member is the work of a write whose caller gave it up and
// which was applied after the clean-up behind it. Without this, it would block its
// name for as long as other locks keep the lease alive.
func (l *lease) list(ctx context.Context) error {
	client := l.driver.client
	sent := time.Now()
	resp, err := client.TimeToLive(ctx, l.id, clientv3.WithAttachedKeys())
	if err != nil {
		return err
	}
	if resp.GrantedTTL == 0 { // the library makes no error of it
		return rpctypes.ErrLeaseNotFound
	}
	var strays []string
	l.mu.Lock()
	for _, key := range resp.Keys {
		if seen := l.members[string(key)]; seen != nil {
			*seen = sent
		} else {
			strays = append(strays, string(key))
		}
	}
	l.listed = sent
	l.mu.Unlock()
	for _, key := range strays[:min(len(strays), maxSweep)] {
		// A failure is no reason to lose what is wanted on the lease; the next
		// listing will show the key again.
		_ = l.sweep(ctx, key)
	}
	return nil
}

// sweep deletes a key that a listing has shown and that was no member then. The
// listing may be older than a move of the key to another lease, and than the release
// of a claim whose key the next one has. So what is deleted is what a read finds on
// the lease now, in this very revision, if even now nobody wants the key: whoever
// joins the lease after that writes another revision.
func (l *lease) sweep(ctx context.Context, key string) error {
	client := l.driver.client
	resp, err := client.Get(ctx, key)
	if err != nil || len(resp.Kvs) == 0 || clientv3.LeaseID(resp.Kvs[0].Lease) != l.id || l.wants(key) {
		return err
	}
	same := clientv3.Compare(clientv3.ModRevision(key), "=", resp.Kvs[0].ModRevision)
	_, err = client.Txn(ctx).If(same).Then(clientv3.OpDelete(key)).Commit()
	return err
}

func (l *lease) wants(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.members[key] != nil
}

// revoke ends the lease now, and with it what is on it. Whatever comes later for it
// is refused.
func (l *lease) revoke(ctx context.Context) error {
	_, err := l.driver.client.Revoke(ctx, l.id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		err = nil
	}
	if err == nil {
		l.die()
	}
	return err
}

// die notes that the lease is gone.
func (l *lease) die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

// join makes key a member, before it is written. It reports false if the lease is
// gone or full.
func (l *lease) join(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead || len(l.members) == maxMembers || l.bytes+len(key) > maxBytes {
		return false
	}
	l.members[key] = new(time.Time)
	l.bytes += len(key)
	return true
}

// leave ends the membership of key, after it was removed, or given up: if mayCome,
// it may be, or come to be, there all the same.
func (l *lease) leave(key string, mayCome bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.members[key] != nil {
		delete(l.members, key)
		l.bytes -= len(key)
	}
	l.suspect = l.suspect || mayCome
}

// see notes that key is on the lease now.
func (l *lease) see(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seen := l.members[key]; seen != nil {
		*seen = time.Now()
	}
}

// has reports whether key is known to have been on the lease when its keys were
// last listed, or since.
func (l *lease) has(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.members[key]
	return seen != nil && !seen.Before(l.listed)
}

// gives reports whether the lease was granted for at least ttl.
func (l *lease) gives(ttl time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl >= ttl
}

// over reports whether the lease is gone, or is left to end because no key wants it.
func (l *lease) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead || len(l.members) == 0 && time.Since(l.sent) > l.ttl
}

// grant returns what the lease gives a lock.
func (l *lease) grant(token int64) distlock.Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return distlock.Grant{Token: token, TTL: l.ttl, Sent: l.sent}
}
