package etcdlock

import (
	"cmp"
	"context"
	"errors"
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
//
// A look in vain does not wait for the keep-alive of a shared lease, which goes on in the background.
// That of a lease of its own ends with the call.
//
// A waiter leaves a lease that is to be replaced, if there is another: it may wait for an orphan on it.
func (c *claim) lookAgain(ctx context.Context, until time.Time) error {
	if c.next != nil || c.lease.toBeReplaced() {
		left, err := c.move(ctx, until, c.request.TTL)
		left.revokeIfOwn(ctx)
		switch {
		case errors.Is(err, distlock.ErrLost):
			return errDequeued
		case err != nil && c.next != nil:
			return err
		}
	}
	kept, err := c.lease.needed(ctx, until)
	if err == nil {
		err = c.look(ctx)
	}
	if err == nil || errors.Is(err, distlock.ErrHeld) && !c.lease.shared {
		err = cmp.Or(c.lease.kept(ctx, kept, until), err)
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
		if err != nil && !final(err) {
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
	p, at := c.lease.peek(ctx, c.key, c.before)
	if err := p.wait(ctx); err != nil {
		return false, err
	}
	own, before := p.found[at], p.found[at+1]
	if !own.is(c.rev) || !before.is(c.beforeRev) {
		return false, nil
	}
	c.asOf = own.revision
	return true, nil
}

// maxReads is how many keys one request reads. A server allows 128 by default.
const maxReads = 64

// peek reads the keys of several waiters in one transaction. Each waiter looks at
// every third of its TTL, whatever happens. Ten thousand of them are more than a loaded
// server answers one by one. The answers were late then, and the waiters failed.
type peek struct {
	ops   []clientv3.Op // two for each waiter
	found []found       // as many
	request
}

// peek has the own key of a waiter and the one before it read, and returns where in the peek the two
// answers come. One request is under way at a time, and takes along all that have come meanwhile: the
// slower the server, the fewer the requests. They read the values, too: with keys only, etcd 3.7
// leaves out the lease.
//
// On a lease of a claim alone nothing is shared, and the request ends with its call.
func (l *lease) peek(ctx context.Context, own, before string) (p *peek, at int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.peeks); n == 0 || len(l.peeks[n-1].ops) == maxReads {
		l.peeks = append(l.peeks, &peek{request: request{done: make(chan struct{})}})
	}
	p = l.peeks[len(l.peeks)-1]
	at = len(p.ops)
	p.ops = append(p.ops, clientv3.OpGet(own), clientv3.OpGet(before))
	switch {
	case !l.shared:
		interval := l.interval()
		l.peeks = nil
		l.store.background.Go(func() { l.send(ctx, p, interval) })
	case !l.peeking:
		l.peeking = true
		l.store.background.Go(l.sendPeeks)
	}
	return p, at
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
		p, interval := l.peeks[0], l.interval()
		l.peeks = l.peeks[1:]
		l.mu.Unlock()
		l.send(l.store.life, p, interval)
	}
}

func (l *lease) send(ctx context.Context, p *peek, interval time.Duration) {
	defer close(p.done)
	p.err = l.within(ctx, func(ctx context.Context) error {
		a := l.store.txn(ctx, interval, txn{then: p.ops})
		p.found = a.got.read
		return a.err
	})
}
