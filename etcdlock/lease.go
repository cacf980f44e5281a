package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/distlock-go/distlock/driver"
)

const (
	// maxMembers and maxBytes, the sum of the lengths of the keys, bound the listing of
	// a lease. They also bound how much the servers delete in one step when it ends.
	// Other requests wait meanwhile: 6 µs for each key in a measurement. So ten
	// thousand locks are one lease, and its end delays others by a tenth of a second.
	maxMembers = 16384
	maxBytes   = 1 << 20

	// maxStrays is how many strays one listing removes; the next one goes on.
	maxStrays = 16
)

// lease is a lease of etcd, and when it was last kept alive. The keep-alive channel of
// the client library is of no use here. It stamps replies, not requests, and it closes
// up to a second after the end.
//
// A stray is a key on a shared lease that no claim wants: a put was applied after its
// claim had ended. It would block its name for as long as other locks keep the lease
// alive. Two things prevent that:
//
//   - A put on a shared lease is applied only in its own epoch. The clean-up behind a
//     put without an answer begins the next epoch. So a stopped member, with the put in
//     its buffers, does not apply it later. The number of an epoch is the mod revision
//     of a key on the lease, 0 before the first such clean-up: most leases never have
//     that key.
//   - A listing of the keys on the lease finds strays after a failed clean-up, and after
//     something between us and the servers has sent a put twice.
type lease struct {
	store *store
	id    clientv3.LeaseID
	kind
	epochKey string // has no terminator, so it belongs to no queue
	epoch    atomic.Int64
	granted  atomic.Bool
	dead     atomic.Bool // the server has said so
	cleaning atomic.Bool // strays are being removed

	mu      sync.Mutex
	ttl     time.Duration // as granted
	sent    time.Time     // before the last confirmed grant or keep-alive was sent
	listed  time.Time     // before the last listing of the keys was sent
	renewal *request      // under way, if any
	listing *request      // likewise
	peeks   []*peek       // to be sent
	peeking bool

	members map[string]struct{} // the keys that claims want on the lease
	missing map[string]struct{} // members that the last listing has not shown; mostly nil
	bytes   int                 // of the members
}

// newLease returns a lease before its grant. The client chooses the ID. So the library
// and we can repeat the grant without leaving a second lease.
func newLease(s *store, k kind) *lease {
	id := clientv3.LeaseID(1 + rand.Int64N(1<<63-1))
	return &lease{
		store:    s,
		id:       id,
		kind:     k,
		epochKey: s.prefix + strconv.FormatInt(int64(id), 16),
		members:  make(map[string]struct{}),
	}
}

// lease returns a lease of a kind, with key as a member. Sharing is for speed: one client
// took 2,040 locks a second on a shared lease, and 895 with a lease for each lock.
func (s *store) lease(key string, k kind) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.shared {
		s.leases = slices.DeleteFunc(s.leases, (*lease).over)
		for _, l := range s.leases {
			if l.kind == k && l.join(key) {
				return l
			}
		}
	}
	l := newLease(s, k)
	l.join(key)
	if k.shared {
		s.leases = append(s.leases, l)
	}
	return l
}

// request is a keep-alive or a listing under way, for all callers that need it, as in
// package singleflight. It has a goroutine: its callers come and go, and it outlives
// each of them.
type request struct {
	done chan struct{} // closed when err is final
	err  error
}

// ensure makes the lease last until an instant, and its keys be listed after another
// (the zero Time if that does not matter). It sends requests only where they are
// needed. It returns rpctypes.ErrLeaseNotFound if the lease is gone.
//
// The requests have a context of their own, bounded to a part of what the lease has
// left. A renewal shares them with callers, and those may have much more time than the
// lease.
func (l *lease) ensure(ctx context.Context, until, listed time.Time) error {
	var last error
	for {
		r, err := l.needed(until, listed)
		if r == nil {
			return err
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return cmp.Or(last, ctx.Err())
		}
		if r.err != nil && settled(r.err) {
			return r.err
		}
		if said(r.err) {
			last = r.err
		}
	}
}

// needed returns a request to wait for; nil if none is needed, or of use. A keep-alive
// and a listing go side by side. A keep-alive comes with a listing from time to time, so
// that strays are found also where locks are too short to be renewed.
func (l *lease) needed(until, listed time.Time) (r *request, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead.Load() {
		return nil, rpctypes.ErrLeaseNotFound
	}
	renew := l.sent.Add(l.ttl).Before(until)
	if l.listed.Before(listed) || renew && l.granted.Load() && time.Since(l.listed) > l.ttl/4 {
		r = l.start(&l.listing, l.list)
		if !l.listed.Before(listed) {
			r = nil
		}
	}
	if renew {
		r = l.start(&l.renewal, l.renew)
	}
	return r, nil
}

// start returns the request under way, or a new one. l.mu is held.
func (l *lease) start(under **request, send func(context.Context) (func(), error)) *request {
	if *under != nil {
		return *under
	}
	r := &request{done: make(chan struct{})}
	*under = r
	limit := l.limit()
	l.store.background.Go(func() {
		defer close(r.done)
		ctx, cancel := context.WithTimeout(l.store.life, limit)
		defer cancel()
		note, err := repeat(ctx, l.store, send)
		l.mu.Lock()
		defer l.mu.Unlock()
		if err == nil {
			note()
		}
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			l.dead.Store(true)
		}
		*under, r.err = nil, err
	})
	return r
}

// limit is how long a request on the lease may take: a third of what the lease has
// left. If the lease is new, or may have ended, it is a third of the whole. l.mu is
// held.
func (l *lease) limit() time.Duration {
	left := time.Until(l.sent.Add(l.ttl))
	if left <= 0 {
		left = time.Duration(l.seconds) * time.Second
	}
	return min(max(left/3, minAttempt), closeLimit)
}

// renew grants the lease, or keeps it alive. It returns a function that notes the answer.
func (l *lease) renew(ctx context.Context) (note func(), err error) {
	granter := l.store.granter
	confirm := func(sent time.Time, seconds int64) func() {
		return func() {
			l.sent, l.ttl = sent, lifetime(seconds)
			l.granted.Store(true)
		}
	}
	if !l.granted.Load() {
		sent := time.Now()
		resp, err := granter.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(l.id), TTL: l.seconds}, grpc.WaitForReady(true))
		if err == nil {
			return confirm(sent, resp.TTL), nil
		}
		if err = clientv3.ContextError(ctx, err); !errors.Is(err, rpctypes.ErrLeaseExist) {
			return nil, err
		}
		// An earlier request has granted it, and its reply was lost. The keep-alive
		// tells what it has granted.
	}
	sent := time.Now()
	seconds, err := keepAlive(ctx, granter, l.id, grpc.WaitForReady(true))
	switch {
	case err != nil:
		return nil, clientv3.ContextError(ctx, err)
	case seconds <= 0:
		return nil, rpctypes.ErrLeaseNotFound
	case seconds < l.seconds:
		return nil, &driver.Fault{Fate: driver.Answered, Err: fmt.Errorf("the server keeps a lease for %d s that was asked for %d", seconds, l.seconds)}
	}
	return confirm(sent, seconds), nil
}

// list asks for the keys on the lease. It returns a function that notes the missing
// members, and has strays removed. No renewal waits for the removal. If it fails, the
// next listing shows the strays again.
func (l *lease) list(ctx context.Context) (note func(), err error) {
	sent := time.Now()
	resp, err := l.store.client.TimeToLive(ctx, l.id, clientv3.WithAttachedKeys())
	if err != nil {
		return nil, err
	}
	if resp.GrantedTTL == 0 { // the library makes no error of it
		// A deposed leader may not know the lease. A keep-alive is answered only after
		// the others were asked for the leader; a listing is not.
		_, err = l.renew(ctx)
		return nil, cmp.Or(err, rpctypes.ErrLeaderChanged)
	}
	return func() {
		var strays []string
		found := 0
		for _, key := range resp.Keys {
			if _, wanted := l.members[string(key)]; wanted {
				found++
			} else if string(key) != l.epochKey {
				strays = append(strays, string(key))
			}
		}
		l.listed, l.missing = sent, nil
		if found < len(l.members) {
			l.missing = maps.Clone(l.members)
			for _, key := range resp.Keys {
				delete(l.missing, string(key))
			}
		}
		if len(strays) > 0 && l.cleaning.CompareAndSwap(false, true) {
			l.store.detached(func(ctx context.Context) {
				defer l.cleaning.Store(false)
				for _, key := range strays[:min(len(strays), maxStrays)] {
					_ = l.removeStray(ctx, key)
				}
			})
		}
	}, nil
}

// removeStray deletes a key of a listing if it was no member then. The listing may be
// older than a move of the key to another lease. It may also be older than a release,
// and the next claim may have the key. So the order is:
//
//  1. read the key: it must be on this lease now;
//  2. look again whether a claim wants it: a claim joins the lease before it writes, so
//     a claim joining after this look writes after the read, and another revision;
//  3. delete the key in the revision that was read.
func (l *lease) removeStray(ctx context.Context, key string) error {
	client := l.store.client
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
	_, wanted := l.members[key]
	return wanted
}

// misses reports whether the last listing lacked key.
func (l *lease) misses(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, missing := l.missing[key]
	return missing
}

// join makes key a member, before it is written. It reports false if the lease is
// gone or full.
func (l *lease) join(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead.Load() || len(l.members) == maxMembers || l.bytes+len(key) > maxBytes {
		return false
	}
	l.members[key] = struct{}{}
	l.bytes += len(key)
	return true
}

// leave ends the membership of key.
func (l *lease) leave(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, wanted := l.members[key]; wanted {
		delete(l.members, key)
		l.bytes -= len(key)
	}
}

// lasts reports whether the lease is known to last until an instant.
func (l *lease) lasts(until time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.sent.Add(l.ttl).Before(until)
}

// used reports whether a claim wants a key on the lease.
func (l *lease) used() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.members) > 0
}

// over reports whether the lease is gone, or is left to end because no key wants it.
func (l *lease) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead.Load() || len(l.members) == 0 && time.Since(l.sent) > l.ttl
}

// abandon ends the membership of key if its claim will not be released. It ends the
// epoch if a put of that may still come, and the lease if no other claim uses it. If a
// request fails, the next listing finds the stray, and the lease ends with its TTL.
func (l *lease) abandon(key string, mayCome bool, epoch int64) {
	l.leave(key)
	if l.shared && !mayCome {
		return
	}
	l.store.detached(func(ctx context.Context) {
		if l.shared {
			_, _ = l.store.write(ctx, l.nextEpoch(epoch), func(error) {})
		} else {
			_ = l.revoke(ctx)
		}
	})
}

// revoke ends the lease now, with all keys on it. A put that comes later is refused.
func (l *lease) revoke(ctx context.Context) error {
	_, err := repeat(ctx, l.store, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return l.store.client.Revoke(ctx, l.id)
	})
	if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		l.dead.Store(true)
		return nil
	}
	return err
}

// inEpoch is the condition that the lease is in an epoch.
func (l *lease) inEpoch(number int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(l.epochKey), "=", number)
}

// nextEpoch ends an epoch, unless it has ended before.
func (l *lease) nextEpoch(number int64) clientv3.Op {
	return clientv3.OpTxn([]clientv3.Cmp{l.inEpoch(number)},
		[]clientv3.Op{clientv3.OpPut(l.epochKey, "", clientv3.WithLease(l.id))}, nil)
}
