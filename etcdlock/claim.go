package etcdlock

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
)

var (
	// errPlaceLost is returned to a claim that was queued and is no more.
	errPlaceLost = errors.New("the place in the queue is lost: its key was deleted, or its lease has ended")

	// errForeignKey means that there is a key which this process has not written.
	errForeignKey = errors.New("the key of a claim is there before the claim")
)

// claim is one bid: a key that sorts by its create revision among those of the name.
type claim struct {
	driver  *driver
	request distlock.Request
	queue   string // what the keys of the name begin with
	key     string // empty before the first Try

	lease *lease // what the key lives by, or is to; nil before the first Try
	next  *lease // to which a Renew with an unknown outcome may have moved it; mostly nil

	rev    int64 // the create revision of the key; 0 until it is known to exist
	mod    int64 // its mod revision
	won    bool
	unsure bool // a put or a deletion of the key may have been applied, or may still be

	*waiting // nil unless it waits

	removed bool // by Release
	lost    bool // and it was gone before
}

// Try implements distlock.Claim.
func (c *claim) Try(ctx context.Context) (distlock.Grant, error) {
	until := time.Now().Add(c.request.TTL)
	var err error
	if c.rev == 0 {
		err = c.enter(ctx, until)
	} else if err = c.lease.ensure(ctx, until, time.Time{}); err == nil {
		err = c.look(ctx)
	}
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound) && c.rev != 0:
		err = errPlaceLost
	case errors.Is(err, distlock.ErrHeld) && c.request.NoWait:
		c.withdraw(ctx)
	case err == nil:
		c.won = true
		if c.waiting != nil {
			c.driver.idle.put(c.ahead)
			c.own.end()
			c.waiting = nil
		}
		c.lease.see(c.key)
		return c.lease.grant(c.rev), nil
	}
	return distlock.Grant{}, err
}

// enter joins the queue. A lease that has died in the meantime, unused or revoked
// by an administrator, is replaced: nothing of this claim was on it.
func (c *claim) enter(ctx context.Context, until time.Time) (err error) {
	if c.request.NoWait && c.request.NoRenewal && !c.unsure {
		// A refusal costs a read this way, instead of granting a lease in vain.
		queue, err := c.driver.client.Get(ctx, c.queue, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		if queue.Count > 0 {
			return &distlock.HeldError{}
		}
	}
	for range 3 {
		if c.key == "" {
			c.key = c.driver.keys.take(c.queue)
			c.queue = c.key[:len(c.queue)] // one string is enough for a lock that is held
		}
		if c.lease == nil {
			c.lease = c.driver.lease(c.key, c.request.TTL, c.request.NoRenewal)
		}
		if err = c.lease.ensure(ctx, until, time.Time{}); err == nil {
			err = c.put(ctx)
		}
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			c.lease.die()
			c.lease.leave(c.key, false)
			c.lease = nil
		case errors.Is(err, errForeignKey):
			// It may be our own after all: of a put that something between us and the
			// servers has sent twice. Then a listing will find that nobody wants it.
			c.lease.leave(c.key, true)
			c.driver.keys.abandon(c.queue, c.key)
			c.withdraw(ctx)
		default:
			return err
		}
	}
	return err
}

// put writes the key and reads the queue in one transaction. If the key is there
// already, a reply was lost, and what counts is the place that it has.
func (c *claim) put(ctx context.Context) error {
	free := clientv3.Compare(clientv3.CreateRevision(c.key), "=", 0)
	if c.request.NoWait {
		// True of every key in the queue only if there is none: who does not wait
		// neither leaves a place nor overtakes.
		free = clientv3.Compare(clientv3.CreateRevision(c.queue).WithPrefix(), "=", 0)
	}
	resp, err := c.driver.client.Txn(ctx).If(free).Then(
		clientv3.OpPut(c.key, c.request.Holder, clientv3.WithLease(c.lease.id)),
		clientv3.OpGet(c.queue, lastTwo()...),
	).Else(
		clientv3.OpGet(c.key, clientv3.WithKeysOnly()),
	).Commit()
	if err != nil {
		c.doubt(err)
		return err
	}
	if resp.Succeeded {
		c.rev, c.mod = resp.Header.Revision, resp.Header.Revision
		return c.place(resp.Header.Revision, resp.Responses[1].GetResponseRange().Kvs)
	}
	own := resp.Responses[0].GetResponseRange().Kvs
	switch {
	case len(own) == 0:
		return &distlock.HeldError{}
	case !c.unsure:
		// Of a copy of this process, made with the machine that it runs on: it has
		// the same series. What it holds must not be taken for our own.
		return errForeignKey
	}
	c.rev, c.mod = own[0].CreateRevision, own[0].ModRevision
	return c.look(ctx)
}

// doubt notes that a write of the key has failed with err. If it may come late, no
// other claim may ever have the key: it would meet the write.
func (c *claim) doubt(err error) {
	if mayApply(err) {
		c.unsure = true
		c.driver.keys.abandon(c.queue, c.key)
	}
}

// lastTwo selects the newest key of a queue and the one before it.
func lastTwo() []clientv3.OpOption {
	return []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(2)}
}

// look reads the queue up to the own key. It is the proof of ownership after a
// wait: the read is linearizable, and Try has made sure before it that the lease of
// a key that it shows lasts for the TTL.
func (c *claim) look(ctx context.Context) error {
	resp, err := c.driver.client.Get(ctx, c.queue, append(lastTwo(), clientv3.WithMaxCreateRev(c.rev))...)
	if err != nil {
		return err
	}
	return c.place(resp.Header.Revision, resp.Kvs)
}

// place judges the end of the queue, newest first, as of a revision of the store.
func (c *claim) place(revision int64, kvs []*mvccpb.KeyValue) error {
	if len(kvs) == 0 || string(kvs[0].Key) != c.key || kvs[0].CreateRevision != c.rev {
		return errPlaceLost
	}
	if len(kvs) == 1 {
		return nil
	}
	if c.waiting == nil {
		c.waiting = new(waiting)
	}
	c.before, c.asOf = string(kvs[1].Key), revision
	return &distlock.HeldError{}
}

// withdraw gives back what a claim has taken that was refused: nothing of it was
// written. Should the revocation fail, the lease ends with its TTL.
func (c *claim) withdraw(ctx context.Context) {
	if c.lease != nil {
		c.lease.leave(c.key, c.unsure)
		if !c.lease.shared {
			_ = c.lease.revoke(ctx)
		}
		c.lease = nil
	}
	c.freeKey()
}

func (c *claim) freeKey() {
	if c.key != "" {
		c.driver.keys.free(c.queue, c.key)
		c.key = ""
	}
}

// Renew implements distlock.Claim.
func (c *claim) Renew(ctx context.Context, ttl time.Duration) (distlock.Grant, error) {
	until := time.Now().Add(ttl)
	if c.next != nil || !c.lease.gives(ttl) {
		if err := c.move(ctx, until, ttl); err != nil {
			return distlock.Grant{}, err
		}
	}
	err := c.lease.ensure(ctx, until, time.Time{})
	if err == nil {
		err = c.prove(ctx)
	}
	return c.renewed(ctx, err)
}

// renewed returns the answer to a renewal, given the outcome for the lease. A key
// that a listing does not show is lost only if a read of it says the same: unlike
// a read, a listing may come from a leader that has been deposed and does not know.
func (c *claim) renewed(ctx context.Context, err error) (distlock.Grant, error) {
	if err == nil && !c.lease.has(c.key) {
		err = c.prove(ctx)
	}
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		err = distlock.ErrLost
	}
	if err != nil {
		return distlock.Grant{}, err
	}
	return c.lease.grant(c.rev), nil
}

// prove reads whether the key is still there, of this claim, and on its lease.
func (c *claim) prove(ctx context.Context) error {
	// Not keys only: etcd 3.7 leaves the lease out of such answers, too.
	resp, err := c.driver.client.Get(ctx, c.key)
	if err != nil {
		return err
	}
	if !c.owns(resp.Kvs, c.lease) {
		return distlock.ErrLost
	}
	c.lease.see(c.key)
	return nil
}

func (c *claim) owns(kvs []*mvccpb.KeyValue, l *lease) bool {
	return len(kvs) == 1 && kvs[0].CreateRevision == c.rev && clientv3.LeaseID(kvs[0].Lease) == l.id
}

// move puts the key on a lease that gives ttl. The condition on the mod revision
// makes sure that a request which comes late cannot move it back.
func (c *claim) move(ctx context.Context, until time.Time, ttl time.Duration) error {
	if c.next == nil {
		c.next = c.driver.lease(c.key, ttl, c.request.NoRenewal)
		if err := c.next.ensure(ctx, until, time.Time{}); err != nil {
			c.settle(ctx, c.lease)
			return err
		}
	}
	resp, err := c.driver.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(c.key), "=", c.mod)).Then(
		clientv3.OpPut(c.key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(c.next.id)),
	).Else(
		clientv3.OpGet(c.key),
	).Commit()
	switch {
	case mayApply(err):
		return err
	case err != nil:
		c.settle(ctx, c.lease)
		return err
	case resp.Succeeded:
		c.mod = resp.Header.Revision
	default:
		own := resp.Responses[0].GetResponseRange().Kvs
		if !c.owns(own, c.next) {
			c.settle(ctx, c.lease)
			return distlock.ErrLost
		}
		c.mod = own[0].ModRevision // an earlier request has moved it
	}
	c.next.see(c.key)
	c.settle(ctx, c.next)
	return nil
}

// settle makes l, the present lease or the next one, the only one. The other, if it
// was the claim's own, is empty now; should the revocation fail, it ends with its TTL.
func (c *claim) settle(ctx context.Context, l *lease) {
	other := c.next
	if l == c.next {
		other = c.lease
	}
	c.lease, c.next = l, nil
	other.leave(c.key, false)
	if !other.shared {
		_ = other.revoke(ctx)
	}
}

// Release implements distlock.Claim. The create revision says which key is the
// claim's: a request that comes late, or that something between us and the servers
// sends again, must not delete that of a later claim, nor a copy of this process,
// made with the machine that it runs on, what the original holds.
//
// Revoking the claim's own lease then also stops a put that may still come; on a
// shared one the next listing finds it.
func (c *claim) Release(ctx context.Context) error {
	if c.waiting != nil {
		c.ahead.end()
		c.own.end()
		c.waiting = nil
	}
	if c.lease == nil {
		c.freeKey()
		return nil
	}
	leases := []*lease{c.lease}
	if c.next != nil {
		leases = append(leases, c.next)
	}
	if !c.removed {
		held, err := c.remove(ctx)
		for _, l := range leases {
			l.leave(c.key, c.unsure || err != nil)
		}
		if err != nil {
			c.doubt(err)
			return err
		}
		c.removed, c.lost = true, c.won && !held
		c.driver.keys.free(c.queue, c.key)
	}
	for _, l := range leases {
		if !l.shared {
			if err := l.revoke(ctx); err != nil {
				return err
			}
		}
	}
	if c.lost {
		return distlock.ErrLost
	}
	return nil
}

// remove deletes the key of the claim, and reports whether it was there, as it was
// known to be. A put whose outcome is not known has made another revision of it, if
// any, on the claim's lease.
func (c *claim) remove(ctx context.Context) (held bool, err error) {
	if c.rev == 0 && !c.unsure {
		return false, nil // nothing was written
	}
	del := clientv3.OpDelete(c.key)
	txn := c.driver.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(c.key), "=", c.rev)).Then(del)
	if c.unsure {
		ours := clientv3.Compare(clientv3.LeaseValue(c.key), "=", c.lease.id)
		txn = txn.Else(clientv3.OpTxn([]clientv3.Cmp{ours}, []clientv3.Op{del}, nil))
	}
	resp, err := txn.Commit()
	if err != nil {
		return false, err
	}
	return resp.Succeeded, nil
}
