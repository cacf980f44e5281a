package zklock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// Renew implements driver.Driver. Sessions have nothing in common, so one that hangs
// does not hold up the others.
func (d *store) Renew(ctx context.Context, batch []driver.Renewal) {
	bySession := make(map[*session][]*driver.Renewal, 1)
	for i := range batch {
		s := batch[i].Claim.(*claim).session
		bySession[s] = append(bySession[s], &batch[i])
	}
	var all sync.WaitGroup
	for s, part := range bySession {
		all.Go(func() { s.renew(ctx, part) })
	}
	all.Wait()
}

// renew renews claims that live by s: by one write that confirms the session, and a
// watch on each node. 10,000 locks cost one request, once their watches are armed.
//
//	arm       what has no watch, all at once: the first renewal, or after a change of a node
//	promise   confirm the session, unless that was done just now for others
//	check     wait for the watch; a node that is not there is ErrLost. What was deleted
//	          before the write has made its watch fire by now: the servers send that first
//
// There is one exception: the write may go out just when the connection is back, before the
// library has set its watches again. Then the next renewal tells.
//
// So the write does not wait for the watches. A node that is there when its watch is
// armed was there at the write, if that came first: it never comes back.
//
// How old the write may be counts from the start of the batch. Counted from now, a slow
// write would be too old for the next claim, and each of them would send its own.
func (s *session) renew(ctx context.Context, part []*driver.Renewal) {
	began := time.Now()
	var unarmed []func()
	for _, r := range part {
		if arm := r.Claim.(*claim).nextWatch(); arm != nil {
			unarmed = append(unarmed, arm)
		}
	}
	go each(unarmed, func(arm func()) { arm() })
	for _, r := range part {
		c := r.Claim.(*claim)
		ttl, err := c.promise(ctx, began, r.TTL, r.TTL/sharing)
		if err == nil {
			err = c.check(ctx)
		}
		if errors.Is(err, zk.ErrSessionExpired) {
			err = distlock.ErrLost
		}
		r.Answer(driver.Grant{Token: c.czxid, TTL: ttl}, err)
	}
}

// check returns ErrLost if the servers have said that the claim is no more: its
// session has expired, or its node is not there.
func (c *claim) check(ctx context.Context) error {
	s := c.session
	if s.conn.IsClosed() {
		return s.fault(zk.ErrClosing)
	}
	if !s.lives(c.id) {
		return distlock.ErrLost
	}
	w := c.watchNode()
	err := w.wait(ctx)
	if err == nil {
		w.dropWaiterData()
	}
	if w.deleted.Load() {
		return distlock.ErrLost
	}
	return s.fault(err)
}

// atOnce bounds the requests that one call has under way, on the one connection.
const atOnce = 16

// each calls f for all elements, some side by side, and returns when all calls have.
func each[T any](all []T, f func(T)) {
	var lanes sync.WaitGroup
	for i := range min(atOnce, len(all)) {
		lanes.Go(func() {
			for ; i < len(all); i += atOnce {
				f(all[i])
			}
		})
	}
	lanes.Wait()
}
