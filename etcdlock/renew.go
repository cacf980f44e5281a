package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// stays reports whether the key can stay on its lease for another ttl, until an
// instant: no keep-alive is needed, or one gives just that.
func (c *claim) stays(until time.Time, ttl time.Duration) bool {
	return c.next == nil && (c.lease.lasts(until) || c.lease.kind == c.kind(ttl))
}

// move puts the key on a lease for ttl, or settles what an earlier request for that has done.
// The condition on the mod revision keeps a late request from moving it back.
//
//	claim                                          etcd
//	  |-- grant the next lease ---------------------->|
//	  |-- put the key on it, if mod is 7 ------------>|  mod is 9
//	  |     (no answer: the key may be on either)     |  neither lease is given up
//	  |-- the same again ---------------------------->|  refused: reads the key, mod 9
//	  |-- abandon the other lease ------------------->|
//
// The old lease ends last: revoked before the put, it would take the key along. move returns the
// lease that the key has left, which the caller ends, once the claim has its answer; nil if it has
// left none.
func (c *claim) move(ctx context.Context, until time.Time, ttl time.Duration) (left *lease, err error) {
	if c.next == nil {
		c.next = c.store.lease(c.key, c.kind(ttl))
		if err = c.next.ensure(ctx, until); err != nil {
			left = c.keepOnly(c.lease)
		}
	}
	if err == nil {
		left, err = c.attach(ctx)
	}
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound): // it was the next one: the key is on the present lease
		err = errLeaseOver
	case err == nil && !c.stays(until, ttl):
		err = errElsewhere // an earlier request was for another TTL
	}
	return left, err
}

var errElsewhere = again("the key lives by a lease for another TTL")

// attach writes the key as one of the next lease. An attempt of an earlier Renew may have
// moved the key already. So while one has an unknown outcome, a refusal of another settles
// nothing: the next lease must not be revoked, as it would take the key along. The
// exception is that the next lease is gone. A server says so only if the condition is
// true, and then the key is on the present lease, and stays there.
func (c *claim) attach(ctx context.Context) (left *lease, err error) {
	moved := c.store.txn(ctx, c.store.steady(ctx), txn{
		conditions: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(c.key), "=", c.mod)},
		then:       []clientv3.Op{clientv3.OpPut(c.key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(c.next.id))},
		otherwise:  []clientv3.Op{clientv3.OpGet(c.key)},
	})
	c.moving = c.moving || moved.unsure
	switch did, err := moved.got, moved.err; {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return c.attachFull(ctx, err)
	case err != nil && c.moving && !errors.Is(err, rpctypes.ErrLeaseNotFound):
		return nil, err
	case err != nil:
		return c.keepOnly(c.lease), err
	case did.succeeded:
		c.mod = did.revision
	default:
		own := did.read[0].first()
		if !c.owns(own, c.next) {
			return c.keepOnly(c.lease), distlock.ErrLost
		}
		c.mod = own.ModRevision // an earlier request has moved it
	}
	return c.keepOnly(c.next), nil
}

// attachFull finds out whether the move was the write that has filled the store up: then it was
// applied all the same. If no other may be, the key stays on the present lease.
func (c *claim) attachFull(ctx context.Context, refused error) (left *lease, err error) {
	got, err := c.store.get(ctx, c.key)
	switch own := got.first(); {
	case err != nil:
		c.moving = true
		return nil, err
	case c.owns(own, c.next):
		c.mod = own.ModRevision
		return c.keepOnly(c.next), nil
	case c.moving:
		return nil, refused
	}
	return c.keepOnly(c.lease), refused
}

// keepOnly makes l, the present lease or the next one, the only one. It returns the other.
func (c *claim) keepOnly(l *lease) (other *lease) {
	other = c.next
	if l == c.next {
		other = c.lease
	}
	c.lease, c.next, c.moving = l, nil, false
	other.leave(c.key)
	return other
}

func (c *claim) owns(kv *mvccpb.KeyValue, l *lease) bool {
	return kv != nil && kv.CreateRevision == c.rev && clientv3.LeaseID(kv.Lease) == l.id
}

// maxMoves is how many claims of a batch leave a lease that is to be replaced.
const maxMoves = 32

// Renew implements driver.Driver: one keep-alive for each lease, however many claims live by
// it, and one read for each 64 of its keys. None waits for another, as it may hang, nor for a claim
// on the move. A claim is renewed, from before the requests, once both are answered and its key was read.
//
// The order of a keep-alive and a read does not matter. If a key goes between the
// two, it is lost at the next renewal. The same is true if it goes a moment after both.
func (s *store) Renew(ctx context.Context, batch []driver.Renewal) {
	began := time.Now()
	groups := make(map[*lease][]*driver.Renewal)
	var tasks []func()
	moves := 0
	for i := range batch {
		r := &batch[i]
		c := r.Claim.(*claim)
		stays := c.stays(began.Add(r.TTL), r.TTL)
		if stays && moves < maxMoves && c.lease.toBeReplaced() {
			stays = false
			moves++
		}
		if stays {
			groups[c.lease] = append(groups[c.lease], r)
			continue
		}
		tasks = append(tasks, func() {
			until := began.Add(r.TTL)
			left, err := c.move(ctx, until, r.TTL)
			switch {
			case err == nil && c.lease.lasts(until): // and the move has shown that the key is there
				r.Answer(c.grant(began, r.TTL), nil)
			case c.stays(until, r.TTL) && !errors.Is(err, distlock.ErrLost):
				c.lease.renewAll(ctx, began, []*driver.Renewal{r}) // also if there is no other lease to be had
			default:
				r.Answer(driver.Grant{}, err)
			}
			left.revokeIfOwn(ctx)
		})
	}
	for l, group := range groups {
		for some := range slices.Chunk(group, maxReads) {
			tasks = append(tasks, func() { l.renewAll(ctx, began, some) })
		}
	}
	var running sync.WaitGroup
	for _, task := range tasks[1:] {
		running.Go(task)
	}
	tasks[0]() // mostly the only one
	running.Wait()
}

// renewAll renews claims that live by the lease, maxReads at the most.
func (l *lease) renewAll(ctx context.Context, began time.Time, group []*driver.Renewal) {
	ttl := group[0].TTL
	reads := make([]clientv3.Op, len(group))
	for i, r := range group {
		ttl, reads[i] = max(ttl, r.TTL), clientv3.OpGet(r.Claim.(*claim).key)
	}
	until := began.Add(ttl)
	request, kept := l.needed(ctx, until) // side by side with the read
	keys, err := l.store.read(ctx, reads)
	if kept == nil {
		kept = l.kept(ctx, request, until)
	}
	for i, r := range group {
		c := r.Claim.(*claim)
		switch {
		case err == nil && !c.owns(keys[i].first(), l) || errors.Is(kept, rpctypes.ErrLeaseNotFound):
			r.Answer(driver.Grant{}, distlock.ErrLost)
		case kept != nil || err != nil:
			r.Answer(driver.Grant{}, cmp.Or(kept, err))
		default:
			r.Answer(c.grant(began, r.TTL), nil)
		}
	}
}

// read sends reads as one transaction, or in parts if a server allows only fewer.
func (s *store) read(ctx context.Context, reads []clientv3.Op) ([]found, error) {
	a := s.txn(ctx, s.steady(ctx), txn{then: reads})
	if n := len(reads); n > 1 && errors.Is(a.err, rpctypes.ErrTooManyOps) {
		first, err := s.read(ctx, reads[:n/2])
		if err != nil {
			return nil, err
		}
		rest, err := s.read(ctx, reads[n/2:])
		return append(first, rest...), err
	}
	return a.got.read, a.err
}
