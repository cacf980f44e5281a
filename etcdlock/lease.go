package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/etcdlock/internal/member"
)

const (
	// maxMembers and maxBytes, the sum of the lengths of the keys, bound what one lease has.
	// The servers delete that in one step when it ends. Other requests wait meanwhile, by a tenth of
	// a second for ten thousand keys.
	maxMembers = 16384
	maxBytes   = 1 << 20

	// changePeriod is after how long another lease takes the place of a shared one.
	changePeriod = time.Hour
)

// lease is a lease of etcd, and when it was last kept alive. The keep-alive channel of
// the client library is of no use here. It stamps replies, not requests, and it closes
// up to a second after the end.
//
// An orphan is a key on a shared lease that no claim wants. It would block its name for as long
// as other locks keep the lease alive. A put that comes after its claim has ended makes none if it
// had no answer: a tombstone refuses it (see Release). One that a proxy sends twice may make one. So
// a shared lease is replaced: after changePeriod, at once if the clean-up behind a put without an
// answer fails, and once the deletion of a key was given up: not sooner, as it costs a write for each
// holder and waiter on the lease. Its keys move to the next lease, a few with each renewal, and the
// orphans end with it.
type lease struct {
	store *store
	id    clientv3.LeaseID
	kind
	grants  atomic.Int32 // requests for it that were sent
	late    atomic.Bool  // a put of a key on it may still come
	granted atomic.Bool
	dead    atomic.Bool // the server has said so

	mu      sync.Mutex
	ttl     time.Duration // as granted
	sent    time.Time     // before the last confirmed grant or keep-alive was sent
	change  time.Time     // when another lease takes its place
	renewal *request      // the last one under way, if any
	peeks   []*peek       // to be sent
	peeking bool

	members    map[string]struct{} // the keys that claims want on the lease
	tombstones int
	bytes      int // of both
}

// kind says what a lease is for. A key lives by a lease of the kind that it needs, and
// by no other.
type kind struct {
	seconds int64 // asked for
	shared  bool  // by all claims that need the kind; else by one claim alone
}

func seconds(ttl time.Duration) int64 { return int64((ttl + time.Second - 1) / time.Second) }

// sharedKind is asked for some seconds longer than the locks on it need. For that long
// after a keep-alive, a lock joins the lease without a request. But a crashed holder
// blocks its names for as much longer. At two seconds, the busiest Locker sends one
// keep-alive in two seconds.
func sharedKind(ttl time.Duration) kind {
	s := seconds(ttl)
	return kind{s + min((s+2)/3, 2), true}
}

// ownKind is for one claim alone.
func ownKind(ttl time.Duration) kind { return kind{seconds: seconds(ttl)} }

// kind returns the kind of lease for the key to live by for ttl. If this process dies,
// the key blocks others for as long as its lease lasts. So no lock lives by a lease
// kept alive for a longer TTL than its own. A fixed term, and an extension beyond the
// TTL, have a lease to themselves.
func (c *claim) kind(ttl time.Duration) kind {
	if c.request.NoRenewal || ttl > c.request.TTL {
		return ownKind(ttl)
	}
	return sharedKind(c.request.TTL)
}

// newLease returns a lease before its grant. The client chooses the ID. So the library
// and we can repeat the grant without leaving a second lease.
func newLease(s *store, k kind) *lease {
	return &lease{
		store:   s,
		id:      clientv3.LeaseID(1 + rand.Int64N(1<<63-1)),
		kind:    k,
		change:  time.Now().Add(s.change),
		members: make(map[string]struct{}),
	}
}

// lease returns a lease of a kind, with key as a member. Sharing is for speed.
func (s *store) lease(key string, k kind) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.shared {
		s.leases = slices.DeleteFunc(s.leases, (*lease).disposable)
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

// request is a keep-alive under way, for all callers that need it, as in package
// singleflight. It has a goroutine: its callers come and go, and on a shared lease it outlives
// each of them.
type request struct {
	sent time.Time     // before its first copy: any of them may be the one that is answered
	done chan struct{} // closed when err is final
	err  error
}

// wait waits for the end of the request.
func (r *request) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ensure makes the lease last until an instant. It sends a request only where one is
// needed. It returns rpctypes.ErrLeaseNotFound if the lease is gone.
func (l *lease) ensure(ctx context.Context, until time.Time) error {
	r, err := l.needed(ctx, until)
	if err == nil {
		err = l.kept(ctx, r, until)
	}
	return err
}

// kept waits for what needed has returned.
func (l *lease) kept(ctx context.Context, r *request, until time.Time) error {
	if r == nil {
		return nil
	}
	err := r.wait(ctx)
	if err == nil && !l.lasts(until) {
		err = again("the server has granted a shorter lease than was asked for")
	}
	return err
}

// needed returns the keep-alive to wait for, or begins one; nil if none is needed, or of use.
// One that is under way may be too early: its answer may be late, and another is not kept waiting.
//
// It has a time of its own. A renewal shares it with callers, and those may have much more time
// than the lease.
func (l *lease) needed(ctx context.Context, until time.Time) (r *request, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dead.Load():
		return nil, rpctypes.ErrLeaseNotFound
	case !l.sent.Add(l.ttl).Before(until):
		return nil, nil
	case l.shared && l.renewal != nil && !l.renewal.sent.Add(time.Duration(l.seconds)*time.Second).Before(until):
		return l.renewal, nil
	}
	r = &request{sent: time.Now(), done: make(chan struct{})}
	l.renewal = r
	interval := l.interval()
	l.store.background.Go(func() {
		defer close(r.done)
		var seconds int64
		r.err = l.within(ctx, func(ctx context.Context) error {
			a := send(ctx, l.store, interval, l.renew)
			seconds = a.got
			return a.err
		})
		l.mu.Lock()
		defer l.mu.Unlock()
		if r.err == nil && r.sent.After(l.sent) {
			l.sent, l.ttl = r.sent, lifetime(seconds)
		}
		if errors.Is(r.err, rpctypes.ErrLeaseNotFound) {
			l.dead.Store(true)
		}
		if l.renewal == r {
			l.renewal = nil
		}
	})
	return r, nil
}

// interval is how long a request on the lease waits for one member: a twelfth of what the lease
// has left. If the lease is new, or may have ended, it is one of the whole. l.mu is held.
func (l *lease) interval() time.Duration {
	left := time.Until(l.sent.Add(l.ttl))
	if left <= 0 {
		left = time.Duration(l.seconds) * time.Second
	}
	return min(max(left, minRequest), maxRequest) / time.Duration(3*l.store.copies)
}

// within gives a request the time that one on the lease may take. If the lease is shared, several
// claims may wait for the request, and it outlives their calls.
func (l *lease) within(call context.Context, request func(context.Context) error) error {
	if l.shared {
		call = l.store.life
	}
	return bounded(call, min(time.Duration(l.seconds)*time.Second, maxRequest), request)
}

// renew grants the lease, or keeps it alive. It returns for how many seconds.
func (l *lease) renew(ctx context.Context) (seconds int64, err error) {
	granter := l.store.granter
	if !l.granted.Load() {
		l.grants.Add(1)
		resp, err := granter.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(l.id), TTL: l.seconds}, grpc.WaitForReady(!l.store.owned))
		if err == nil {
			l.granted.Store(true)
			return resp.TTL, nil
		}
		err = clientv3.ContextError(ctx, err)
		switch {
		case fate(err) == driver.NotSent && l.store.owned:
			l.grants.Add(-1) // there is nothing to revoke
			return 0, err
		case errors.Is(err, rpctypes.ErrLeaseExist):
		case fate(err) == driver.Unknown && !contextEnded(err):
			return 0, &driver.Fault{Fate: driver.Again, Err: err} // it may be there, but no key is on it
		default:
			return 0, err
		}
		// An earlier request has granted it, and its reply was lost. The keep-alive
		// tells what it has granted.
	}
	seconds, err = member.KeepAlive(ctx, granter, l.id, grpc.WaitForReady(!l.store.owned))
	switch {
	case err != nil:
		return 0, clientv3.ContextError(ctx, err)
	case seconds <= 0:
		return 0, rpctypes.ErrLeaseNotFound
	case seconds < l.seconds:
		return 0, &driver.Fault{Fate: driver.Answered, Err: fmt.Errorf("the server keeps a lease for %d s that was asked for %d", seconds, l.seconds)}
	}
	l.granted.Store(true)
	return seconds, nil
}

// join makes key a member, before it is written. It reports false if the lease is
// gone, full, or to be replaced.
func (l *lease) join(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead.Load() || l.shared && time.Now().After(l.change) || len(l.members)+l.tombstones >= maxMembers || l.bytes+len(key) > maxBytes {
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

// keep makes room for a tombstone.
func (l *lease) keep(length int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tombstones++
	l.bytes += length
}

// lasts reports whether the lease is known to last until an instant.
func (l *lease) lasts(until time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.sent.Add(l.ttl).Before(until)
}

// toBeReplaced reports whether another lease takes the place of this one, which has had its time, or may have an orphan.
func (l *lease) toBeReplaced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shared && time.Now().After(l.change)
}

// replace has another lease take the place of this one, because it may have an orphan.
func (l *lease) replace() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.change = time.Time{}
}

// used reports whether a claim wants a key on the lease.
func (l *lease) used() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.members) > 0
}

// disposable reports whether the lease is gone, or is left to end because no key wants it. One with a request under way
// is not: if each caller of a store that is silent had another, leases and requests would pile up.
func (l *lease) disposable() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead.Load() || len(l.members) == 0 && l.renewal == nil && time.Since(l.sent) > l.ttl
}

// revokeIfOwn revokes the lease if it was for one claim alone, and that wants it no more. If it cannot be
// revoked now, it ends with Close, or with its TTL.
func (l *lease) revokeIfOwn(ctx context.Context) {
	if l == nil || !l.revocable() || l.grants.Load() == 0 || l.revoke(ctx) == nil {
		return
	}
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	l.store.leases = append(slices.DeleteFunc(l.store.leases, (*lease).disposable), l)
}

// revocable reports whether a revocation ends for good all that the lease is for. It does not end what other claims
// want. Nor does it if the lease was asked for more than once, and a put on it may still come: a late request would grant
// the lease again. Then it stays until its TTL is over, with a tombstone.
func (l *lease) revocable() bool { return !l.shared && (l.grants.Load() <= 1 || !l.late.Load()) }

// revoke ends the lease now, with all keys on it. A put that comes later is refused.
func (l *lease) revoke(ctx context.Context) error {
	err := send(ctx, l.store, l.store.steady(ctx), func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return l.store.lessor.Revoke(ctx, l.id)
	}).err
	if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		l.dead.Store(true)
		return nil
	}
	return err
}
