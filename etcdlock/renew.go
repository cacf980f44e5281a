package etcdlock

import (
	"cmp"
	"context"
	"errors"
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
// The old lease ends last: revoked before the put, it would take the key along.
func (c *claim) move(ctx context.Context, until time.Time, ttl time.Duration) error {
	if c.next == nil {
		c.next = c.store.lease(c.key, c.kind(ttl))
		if err := c.next.ensure(ctx, until); err != nil {
			c.settle(c.lease)
			return notOfNext(err)
		}
	}
	if err := c.attach(ctx); err != nil {
		return notOfNext(err)
	}
	if !c.stays(until, ttl) {
		return errElsewhere // an earlier request was for another TTL
	}
	return nil
}

var errElsewhere = again("the key lives by a lease for another TTL")

// notOfNext says that it was the next lease that is gone: the key is on the present one.
func notOfNext(err error) error {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return errLeaseOver
	}
	return err
}

// attach writes the key as one of the next lease. An attempt of an earlier Renew may have
// moved the key already. So while one has an unknown outcome, a refusal of another settles
// nothing: the next lease must not be revoked, as it would take the key along. The
// exception is that the next lease is gone. A server says so only if the condition is
// true, and then the key is on the present lease, and stays there.
func (c *claim) attach(ctx context.Context) error {
	then := []clientv3.Op{clientv3.OpPut(c.key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(c.next.id))}
	otherwise := []clientv3.Op{clientv3.OpGet(c.key)}
	resp, unsure, err := c.store.write(ctx, clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(c.key), "=", c.mod)}, then, otherwise))
	var read []found
	var revision int64
	if err == nil {
		read, revision, err = reads(resp, then, otherwise)
		unsure = unsure || err != nil
	}
	c.moving = c.moving || unsure || errors.Is(err, rpctypes.ErrNoSpace)
	switch {
	case err != nil && c.moving && !errors.Is(err, rpctypes.ErrLeaseNotFound):
		return err
	case err != nil:
		c.settle(c.lease)
		return err
	case resp.Succeeded:
		c.mod = revision
	default:
		own := read[0].first()
		if !c.owns(own, c.next) {
			c.settle(c.lease)
			return distlock.ErrLost
		}
		c.mod = own.ModRevision // an earlier request has moved it
	}
	c.settle(c.next)
	return nil
}

// settle makes l, the present lease or the next one, the only one.
func (c *claim) settle(l *lease) {
	other := c.next
	if l == c.next {
		other = c.lease
	}
	c.lease, c.next, c.moving = l, nil, false
	other.abandon(c.key, false, 0)
}

func (c *claim) owns(kv *mvccpb.KeyValue, l *lease) bool {
	return kv != nil && kv.CreateRevision == c.rev && clientv3.LeaseID(kv.Lease) == l.id
}

// maxMoves is how many claims of a batch leave a lease that is to be replaced.
const maxMoves = 32

// Renew implements driver.Driver: one keep-alive for each lease, however many claims live by
// it, and one read for each 64 of its keys. No lease waits for another, and none for a claim on
// the move:
//
//	batch --+-- lease A: keep-alive ------- } both answered, and the key read:
//	        |            read its keys ---- } renewed, from before the requests
//	        +-- lease B: keep-alive, read its keys
//	        +-- claim that moves: grant lease C, put the key on it
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
		if stays && moves < maxMoves && c.lease.old() {
			stays = false
			moves++
		}
		if stays {
			groups[c.lease] = append(groups[c.lease], r)
			continue
		}
		tasks = append(tasks, func() {
			until := began.Add(r.TTL)
			err := c.move(ctx, until, r.TTL)
			switch {
			case err != nil: // also if the new lease is gone: the key is on the present one
				r.Answer(driver.Grant{}, err)
			case c.lease.lasts(until): // and the move has shown that the key is there
				r.Answer(c.grant(began, r.TTL), nil)
			default:
				c.lease.renewAll(ctx, began, []*driver.Renewal{r})
			}
		})
	}
	for l, group := range groups {
		tasks = append(tasks, func() { l.renewAll(ctx, began, group) })
	}
	var running sync.WaitGroup
	for _, task := range tasks[1:] {
		running.Go(task)
	}
	tasks[0]() // mostly the only one
	running.Wait()
}

// renewAll renews claims that live by the lease.
func (l *lease) renewAll(ctx context.Context, began time.Time, group []*driver.Renewal) {
	ttl := group[0].TTL
	keys := make([]string, len(group))
	for i, r := range group {
		ttl, keys[i] = max(ttl, r.TTL), r.Claim.(*claim).key
	}
	until := began.Add(ttl)
	_, _ = l.needed(until) // side by side with the reads
	places := l.peek(keys)
	kept := l.ensure(ctx, until)
	for i, r := range group {
		c := r.Claim.(*claim)
		kv, err := places[i].read(ctx)
		switch {
		case err == nil && !c.owns(kv.first(), l) || errors.Is(kept, rpctypes.ErrLeaseNotFound):
			r.Answer(driver.Grant{}, distlock.ErrLost)
		case kept != nil || err != nil:
			r.Answer(driver.Grant{}, cmp.Or(kept, err))
		default:
			r.Answer(c.grant(began, r.TTL), nil)
		}
	}
}
