package etcdlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

var (
	// oldest selects the holder's key of a queue.
	oldest = append(clientv3.WithFirstCreate(), clientv3.WithPrefix())

	// lastThree selects the newest key of a queue and the two before it. The third one tells
	// whether the second is the holder's. The count of an answer does not: a server counts
	// before it leaves out what a condition excludes.
	lastThree = []clientv3.OpOption{clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(3)}
)

// lookAgain looks for the place in the queue while the lease is kept alive, if it has to
// be. A waiter that is woken over a slow network has its lock after one round trip then,
// and not after two. A grant needs both. Their order does not matter: a lease that has
// ended never comes back. So if a keep-alive is confirmed, and a read has shown the key,
// the lease has lasted from the one to the other, and so has the key.
func (c *claim) lookAgain(ctx context.Context, until time.Time) error {
	if _, err := c.lease.needed(until, time.Time{}); err != nil {
		return err
	}
	err := c.look(ctx)
	if err == nil {
		err = c.lease.ensure(ctx, until, time.Time{})
	}
	return err
}

// look finds the place of the own key in the queue. It confirms ownership: the read is
// linearizable.
//
// The read passes the whole queue in the server. So a waiter that was not woken asks
// for two keys first, and most often that is all.
func (c *claim) look(ctx context.Context) error {
	if c.waiting != nil && !c.moved {
		same, err := c.unmoved(ctx)
		if same {
			return c.refusal()
		}
		if err != nil && !settled(err) {
			return err
		}
		c.moved = true
	}
	queue, err := c.store.get(ctx, c.queue, append(lastThree[:len(lastThree):len(lastThree)], clientv3.WithMaxCreateRev(c.rev))...)
	if err != nil {
		return err
	}
	return c.judge(queue)
}

// judge returns nil if the own key is the oldest. queue is the end of the queue up to
// the own key, newest first.
func (c *claim) judge(queue found) error {
	kvs := queue.kvs
	if len(kvs) == 0 || string(kvs[0].Key) != c.key || kvs[0].CreateRevision != c.rev {
		return errDequeued
	}
	if len(kvs) == 1 {
		return nil
	}
	if c.waiting == nil {
		c.waiting = new(waiting)
	}
	c.before, c.beforeRev, c.asOf, c.moved = string(kvs[1].Key), kvs[1].CreateRevision, queue.revision, false
	c.held = distlock.HeldError{} // the key before the own one is a waiter's
	if len(kvs) == 2 {
		c.held = *heldBy(kvs[1])
	}
	return c.refusal()
}

// refusal is what Try says while the claim waits.
func (w *waiting) refusal() *driver.Held {
	return &driver.Held{HeldError: w.held, NoWake: w.refused}
}

// unmoved reports whether the own key and the one before it are where they were.
func (c *claim) unmoved(ctx context.Context) (bool, error) {
	p, i := c.lease.peek(c.key, c.before)
	select {
	case <-p.done:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if p.err != nil {
		return false, p.err
	}
	for j, rev := range []int64{c.rev, c.beforeRev} {
		if kv := p.found[i+j].first(); kv == nil || kv.CreateRevision != rev {
			return false, nil
		}
	}
	c.asOf = p.found[i].revision
	return true, nil
}

// maxPeek is how many keys a peek reads. A server allows 128 by default.
const maxPeek = 64

// peek reads the places of several waiters in one transaction. Each waiter looks at
// every third of its TTL, whatever happens. Ten thousand of them are more than a loaded
// server answers one by one. The answers were late then, and the waiters failed.
type peek struct {
	ops   []clientv3.Op
	found []found // as many as ops
	request
}

// peek has two keys read, and returns the request for them and the index of the first.
// One request is under way at a time, and takes along all that have come meanwhile: the
// slower the server, the fewer the requests.
func (l *lease) peek(own, before string) (p *peek, first int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.peeks); n > 0 && len(l.peeks[n-1].ops) < maxPeek {
		p = l.peeks[n-1]
	} else {
		p = &peek{request: request{done: make(chan struct{})}}
		l.peeks = append(l.peeks, p)
	}
	p.ops = append(p.ops, clientv3.OpGet(own, clientv3.WithKeysOnly()), clientv3.OpGet(before, clientv3.WithKeysOnly()))
	if !l.peeking {
		l.peeking = true
		l.store.background.Go(l.sendPeeks)
	}
	return p, len(p.ops) - 2
}

// sendPeeks sends what there is, one after the other.
func (l *lease) sendPeeks() {
	for {
		l.mu.Lock()
		if len(l.peeks) == 0 {
			l.peeks, l.peeking = nil, false
			l.mu.Unlock()
			return
		}
		p := l.peeks[0]
		l.peeks = l.peeks[1:]
		l.mu.Unlock()
		l.send(p)
	}
}

func (l *lease) send(p *peek) {
	defer close(p.done)
	ctx, cancel := context.WithTimeout(l.store.life, time.Duration(l.seconds)*time.Second)
	defer cancel()
	p.found, p.err = repeat(ctx, l.store, func(ctx context.Context) (all []found, err error) {
		resp, err := l.store.client.Txn(ctx).Then(p.ops...).Commit()
		if err == nil {
			all, _, err = reads(resp, p.ops, nil)
		}
		return all, err
	})
}
