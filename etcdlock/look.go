package etcdlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock/driver"
)

var (
	// oldest selects the holder's key of a queue.
	oldest = append(clientv3.WithFirstCreate(), clientv3.WithPrefix())

	// lastTwo selects the newest key of a queue and the one before it.
	lastTwo = []clientv3.OpOption{clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(2)}
)

// look finds the place of the own key in the queue. After a wait, it confirms
// ownership: the read is linearizable. Before it, Try has made sure that the lease
// lasts for the TTL, and so does the key that the read shows.
//
// The read passes the whole queue in the server. So a waiter that was not woken asks
// for two keys first, and most often that is all.
func (c *claim) look(ctx context.Context) error {
	if c.waiting != nil && !c.moved {
		same, err := c.unmoved(ctx)
		if same {
			return c.held
		}
		if err != nil && (transient(err) || unanswered(err)) {
			return err
		}
		c.moved = true
	}
	found, err := c.store.get(ctx, c.queue, append(lastTwo[:len(lastTwo):len(lastTwo)], clientv3.WithMaxCreateRev(c.rev))...)
	if err != nil {
		return err
	}
	return c.judge(found.Header.Revision, found)
}

// judge returns nil if the own key is the oldest. found is the end of the queue up to
// the own key, newest first, as of a revision of the store.
func (c *claim) judge(revision int64, found *clientv3.GetResponse) error {
	kvs := found.Kvs
	if len(kvs) == 0 || string(kvs[0].Key) != c.key || kvs[0].CreateRevision != c.rev {
		return errDequeued
	}
	if len(kvs) == 1 {
		return nil
	}
	if c.waiting == nil {
		c.waiting = new(waiting)
	}
	c.before, c.beforeRev, c.asOf, c.moved = string(kvs[1].Key), kvs[1].CreateRevision, revision, false
	c.held = &driver.HeldError{} // the key before the own one is a waiter's
	if found.Count <= 2 {
		c.held = heldBy(kvs[1])
	}
	return c.held
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
		kvs := p.found.Responses[i+j].GetResponseRange().Kvs
		if len(kvs) != 1 || kvs[0].CreateRevision != rev {
			return false, nil
		}
	}
	c.asOf = p.found.Header.Revision
	return true, nil
}

// maxPeek is how many keys a peek reads. A server allows 128 by default.
const maxPeek = 64

// peek reads the places of several waiters in one transaction. Each waiter looks at
// every third of its TTL, whatever happens. Ten thousand of them are more than a loaded
// server answers one by one. The answers were late then, and the waiters failed.
type peek struct {
	ops   []clientv3.Op
	found *clientv3.TxnResponse
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
	p.found, p.err = repeat(ctx, l.store, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		resp, err := l.store.client.Do(ctx, clientv3.OpTxn(nil, p.ops, nil))
		if err == nil && len(resp.Txn().Responses) != len(p.ops) {
			err = errGarbled
		}
		return resp.Txn(), err
	})
}
