package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

var (
	// errDequeued tells a claim that it was in the queue and is no more.
	errDequeued error = &driver.Fault{Fate: driver.Answered,
		Err: errors.New("the waiter is no longer in the queue: its key was deleted, or its lease has ended")}

	errKeyTaken  = again("the key of a claim is there before the claim")
	errLeaseOver = again("the lease has ended")
)

// again is a reason to try again at once.
func again(reason string) error { return &driver.Fault{Fate: driver.Again, Err: errors.New(reason)} }

// claim is one key among those of its name. They form a queue by their create
// revisions, and the oldest has the lock.
type claim struct {
	store   *store
	request driver.Request
	queue   string // what the keys of the name begin with
	key     string // empty before the first Try

	lease *lease // what the key lives by, or is to; nil before the first Try
	next  *lease // a Renew with an unknown outcome may have moved it there; mostly nil

	rev     int64  // the create revision of the key; 0 until it is known to exist
	mod     int64  // its mod revision
	unsure  *lease // on which a put of the key may have been applied, or may still be; mostly nil
	moving  bool   // a put that moves the key to the next lease may have been applied, or may still be
	won     bool
	removed bool // by Release
	lost    bool // and it was gone before

	*waiting // nil unless it waits
}

// Claim implements driver.Driver.
func (s *store) Claim(r driver.Request) driver.Claim {
	r.Owner = "" // a key is random without it
	return &claim{store: s, request: r, queue: s.queue(r.Name)}
}

// WrapLock implements driver.LockWrapper.
func (s *store) WrapLock(h *driver.Handle, c driver.Claim) distlock.Lock {
	return &Lock{Handle: h, key: c.(*claim).key}
}

// Try implements driver.Claim. A first Try puts the key and reads the queue in one
// transaction. Later ones read the queue.
func (c *claim) Try(ctx context.Context) (driver.Grant, error) {
	began := time.Now()
	until := began.Add(c.request.TTL)
	owed := c.unsure != nil || c.rev != 0 // and the engine knows it
	var err error
	if c.rev == 0 {
		err = c.join(ctx, until)
	} else {
		err = c.lookAgain(ctx, until)
	}
	switch {
	case err == nil:
		c.won = true
		c.stopWaiting(c.store.watches.put)
		return c.grant(began, c.request.TTL), nil
	case errors.Is(err, rpctypes.ErrLeaseNotFound) && c.rev != 0:
		err = errDequeued
	case errors.Is(err, distlock.ErrHeld) && c.request.NoWait:
		err = cmp.Or(c.withdraw(ctx), err)
	case errors.Is(err, distlock.ErrHeld) || errors.Is(err, distlock.ErrClosed):
	case c.rev == 0 && c.unsure == nil && driver.FateOf(err) != driver.Unknown:
		_ = c.withdraw(ctx) // nothing was written, so nobody need call Release
	case !owed:
		// Something may have been written, or has been, whatever the last request was told.
		err = &driver.Fault{Fate: driver.Unknown, Err: err}
	}
	return driver.Grant{}, err
}

// grant is what was asked for at began. The lease may last longer, because other claims
// on it have asked for more: this claim does not count on that.
func (c *claim) grant(began time.Time, ttl time.Duration) driver.Grant {
	return driver.Grant{Token: c.rev, TTL: ttl, Sent: began}
}

// join enters the queue. If the lease has died meanwhile, the next Try gets a new one: nothing
// of this claim was on the old one.
func (c *claim) join(ctx context.Context, until time.Time) (err error) {
	if c.request.NoWait && c.request.NoRenewal && c.unsure == nil {
		// A refusal costs a read this way, instead of granting a lease in vain.
		queue, err := c.store.get(ctx, c.queue, oldest...)
		if err != nil {
			return err
		}
		if holder := queue.first(); holder != nil {
			return heldBy(holder)
		}
	}
	if c.key == "" {
		c.key = c.store.keys.take(c.queue)
		c.queue = c.key[:len(c.queue)] // one string is enough for a held lock
	}
	if c.lease == nil {
		c.lease = c.store.lease(c.key, c.kind(c.request.TTL))
	}
	if err = c.lease.ensure(ctx, until); err == nil {
		err = c.put(ctx)
	}
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		c.lease.dead.Store(true)
		c.lease.leave(c.key)
		c.lease, c.unsure = nil, nil
		err = errLeaseOver
	case errors.Is(err, errKeyTaken) && c.unsure == nil && c.lease.shared:
		c.takeAnotherKey()
	case errors.Is(err, errKeyTaken):
		c.mayArrive()
		err = cmp.Or(c.withdraw(ctx), err)
	}
	return err
}

// takeAnotherKey has the next Try take another key, on another lease. It deletes nothing: the key and the lease may be those
// of the original of this process, which was copied with its machine. If something between us and the servers has sent a
// put twice, the key is our own, an orphan, and ends with the lease. Where a put had no answer, nothing in the store tells
// a copy the key of the original from its own.
func (c *claim) takeAnotherKey() {
	s, l := c.store, c.lease
	s.keys.retire(c.queue, c.key)
	l.replace()
	l.leave(c.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases = slices.DeleteFunc(s.leases, func(other *lease) bool { return other == l }) // Close must not revoke it
	c.key, c.lease = "", nil
}

// put writes the key and reads the queue in one transaction. So a free lock costs one
// request, and a waiter knows at once what key to watch.
//
//	condition                           then              else
//	Lock: the key is absent             put, read queue   read the key: a reply was lost
//	TryLock: the queue is empty         put, read queue   read the oldest key: refused
//	both: the key has no tombstone
//
// The server takes it as one step in its log, so no other claim comes between the put
// and the read. The create revision of the key is the revision of the transaction.
func (c *claim) put(ctx context.Context) error {
	free := clientv3.Compare(clientv3.CreateRevision(c.key), "=", 0)
	state := clientv3.OpGet(c.key)
	if c.request.NoWait {
		// True of every key in the queue only if there is none: a TryLock neither
		// stays in the queue nor overtakes. Its own key can only be the oldest.
		free = clientv3.Compare(clientv3.CreateRevision(c.queue).WithPrefix(), "=", 0)
		state = clientv3.OpGet(c.queue, oldest...)
	}
	put := txn{
		conditions: []clientv3.Cmp{free, clientv3.Compare(clientv3.CreateRevision(c.tombstone()), "=", 0)},
		then: []clientv3.Op{
			clientv3.OpPut(c.key, c.request.Holder, clientv3.WithLease(c.lease.id)),
			clientv3.OpGet(c.queue, lastThree...),
		},
		otherwise: []clientv3.Op{state},
	}
	sent := c.store.claims.send(ctx, c.queue, put)
	if sent.unsure {
		c.mayArrive()
	}
	did, err := sent.got, sent.err
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return c.afterNoSpace(ctx, err)
	}
	if err != nil {
		return err
	}
	if did.succeeded {
		c.rev, c.mod = did.revision, did.revision
		return c.judge(did.read[1])
	}
	switch own := did.read[0].first(); {
	case own != nil && string(own.Key) != c.key:
		return heldBy(own)
	case own == nil || c.unsure == nil || clientv3.LeaseID(own.Lease) != c.lease.id:
		// It is the key or the tombstone of a copy of this process, with the same series: the
		// machine was copied while it ran. We must not take what the copy holds for our own.
		return errKeyTaken
	default: // a reply was lost
		c.rev, c.mod = own.CreateRevision, own.ModRevision
		return c.look(ctx)
	}
}

// afterNoSpace finds out whether the put was the one that has filled the store up: then it
// was applied all the same.
func (c *claim) afterNoSpace(ctx context.Context, refused error) error {
	own, err := c.store.get(ctx, c.key)
	if err != nil {
		c.mayArrive()
		return &driver.Fault{Fate: driver.Unknown, Err: err}
	}
	kv := own.first()
	if kv == nil || clientv3.LeaseID(kv.Lease) != c.lease.id {
		return refused
	}
	c.rev, c.mod = kv.CreateRevision, kv.ModRevision
	return c.look(ctx)
}

// mayArrive notes that a write of the key may come late. So no other claim may ever have the
// key: the write would replace it.
func (c *claim) mayArrive() {
	c.unsure = c.lease
	c.lease.late.Store(true)
	c.store.keys.retire(c.queue, c.key)
}

func heldBy(kv *mvccpb.KeyValue) *distlock.HeldError {
	return &distlock.HeldError{Holder: string(kv.Value), Token: kv.CreateRevision}
}

// withdraw gives back what a refused claim has taken. It does so within the call, which has just been answered: in the
// background it would be work without a bound. Mostly nothing was written. Else it has to be undone now, as nobody calls
// Release after a refusal; an error says that it was not.
func (c *claim) withdraw(ctx context.Context) error {
	if c.unsure != nil {
		if err := c.Release(ctx); err != nil {
			return &driver.Fault{Fate: driver.Unknown, Err: err}
		}
		c.unsure, c.removed = nil, false
	} else if c.lease != nil {
		c.lease.leave(c.key)
		c.lease.revokeIfOwn(ctx)
	}
	c.lease = nil
	c.freeKey()
	return nil
}

func (c *claim) freeKey() {
	if c.key != "" {
		c.store.keys.free(c.queue, c.key)
		c.key = ""
	}
}

// Release implements driver.Claim. The create revision tells the claim's key from
// others. A request may come late, or something between us and the servers may send it
// again: it must not delete the key of a later claim. A copy of this process, made with
// its machine, must not delete the key of the original.
//
// A put without an answer may still be applied after that: the member that has it may have stopped, and go on.
// A tombstone of the key refuses it. The claim's own lease is revoked, and that does the same.
//
// After the last call, on a context that has ended, nobody deletes the key: its lease is replaced.
func (c *claim) Release(ctx context.Context) error {
	last := ctx.Err() != nil
	c.stopWaiting((*watch).end)
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
			l.leave(c.key)
			if last && err != nil {
				l.replace()
			}
		}
		if err != nil {
			c.store.keys.retire(c.queue, c.key)
			if c.unsure != nil {
				c.unsure.replace() // if the last try fails as well, a put may still come
			}
			return err
		}
		c.removed, c.lost = true, c.won && !held
		c.store.keys.free(c.queue, c.key)
	}
	for _, l := range leases {
		if l.revocable() {
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

// remove deletes the key of the claim, and reports whether it was there in the revision
// known to the claim. A put without an answer has made another revision, if any, on the
// lease that it was for.
//
// It sends one attempt. The engine calls Release again while its caller waits, and that
// request goes to another member. If the first was applied, the key is gone then, and
// only the engine knows that this is no loss.
func (c *claim) remove(ctx context.Context) (held bool, err error) {
	if c.rev == 0 && c.unsure == nil {
		return false, nil // nothing was written
	}
	var sent answer[outcome]
	if c.unsure == nil {
		sent = c.store.releases.send(ctx, c.queue, c.removal(false))
	} else {
		sent = c.store.txn(ctx, once, c.removal(!c.unsure.revocable()))
	}
	switch {
	case errors.Is(sent.err, rpctypes.ErrLeaseNotFound): // of the tombstone, and no put on it comes any more
		sent = c.store.txn(ctx, once, c.removal(false))
	case errors.Is(sent.err, rpctypes.ErrNoSpace) && c.unsure != nil:
		// It may have been applied, and have filled the store up. A deletion is allowed.
		c.unsure.replace()
		sent = c.store.txn(ctx, once, c.removal(false))
		sent.got.succeeded = true // by one of the two
		if sent.err != nil && !errors.Is(sent.err, distlock.ErrClosed) {
			sent.err = &driver.Fault{Fate: driver.Unknown, Err: sent.err}
		}
	}
	return sent.err == nil && sent.got.succeeded, sent.err
}

// removal is the transaction of remove. One transaction also makes the tombstone: a put comes
// before the deletion, or is refused.
func (c *claim) removal(tombstone bool) txn {
	del := clientv3.OpDelete(c.key)
	t := txn{
		conditions: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(c.key), "=", c.rev)},
		then:       []clientv3.Op{del},
	}
	if c.unsure != nil {
		ours := clientv3.Compare(clientv3.LeaseValue(c.key), "=", c.unsure.id)
		t.otherwise = append(t.otherwise, clientv3.OpTxn([]clientv3.Cmp{ours}, []clientv3.Op{del}, nil))
	}
	if tombstone {
		put := c.putTombstone()
		t.then, t.otherwise = append(t.then, put), append(t.otherwise, put)
	}
	return t
}

// tombstone is a key of the queue of the empty name, which is none. While it is there, no put of the
// claim's key is applied.
func (c *claim) tombstone() string {
	return c.store.prefix + terminator + c.key[len(c.store.prefix):]
}

// putTombstone puts the tombstone, for as long as the lease is there on which a put of the key may still come.
func (c *claim) putTombstone() clientv3.Op {
	tombstone := c.tombstone()
	c.unsure.keep(len(tombstone))
	return clientv3.OpPut(tombstone, "", clientv3.WithLease(c.unsure.id))
}
