package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// claim is a node in the queue of a name, or the attempt to make one. It is kept for as
// long as the lock, so it has little more than a holder needs. Once the path is known,
// stem is a part of it and uses its memory.
type claim struct {
	class   *class
	session *session // of the class; nil when it is not used
	stem    string   // what the path of our node begins with, up to its number
	holder  string
	ttl     time.Duration

	path  string // of our node; "" if none is known
	id    int64  // of the session that our node lives by
	czxid int64
	watch *watch // on our node; nil if there is none

	creation *creation   // its outcome is not known; nil if there is none
	waiting  *waiting    // what a waiter knows; nil for others
	forget   func() bool // see store.WrapLock; may be nil

	noWait bool
	fixed  bool // a fixed term
	won    bool
	left   bool // among the leftovers of the session, or it was
	bare   bool // we may have made the node of the name, and have seen nothing in it since
}

// Try implements driver.Claim.
//
// An error that leaves a node, or perhaps one, is of fate Unknown, whatever the last
// request was told. Unless the claim has waited: then the engine knows of the node. It
// lives by its session, and so outlives the connection.
func (c *claim) Try(ctx context.Context) (driver.Grant, error) {
	if c.session == nil {
		s, err := c.class.use(ctx, c.bytes())
		if err != nil {
			return driver.Grant{}, notSent(err)
		}
		c.session = s
	}
	waited := c.waiting != nil
	grant, err := c.try(ctx)
	if err == nil || errors.Is(err, distlock.ErrHeld) {
		return grant, err
	}
	switch err = c.session.fault(err); {
	case c.path == "" && c.creation == nil && (!c.bare || tryAgain(err)):
		c.quit() // the engine may not call Release
	case !waited && driver.FateOf(err) != driver.Unknown && !errors.Is(err, distlock.ErrClosed):
		err = &driver.Fault{Fate: driver.Unknown, Err: err}
	}
	return grant, err
}

func (c *claim) try(ctx context.Context) (driver.Grant, error) {
	first, err := c.isFirst(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	if !first {
		if c.noWait {
			if err := c.leave(ctx); err != nil {
				return driver.Grant{}, err // our node may be left in the queue, so Release has to come
			}
			return driver.Grant{}, new(distlock.HeldError)
		}
		return driver.Grant{}, c.waiting.refusal()
	}
	// The list that showed us first came from one server, and may be old. It shows our
	// claim, so it is not too old to show a claim before ours. But a majority has to
	// say that our own session is still alive.
	ttl, err := c.promise(ctx, time.Now(), c.ttl, c.ttl)
	if err != nil {
		return driver.Grant{}, err
	}
	c.won, c.waiting = true, nil
	return driver.Grant{Token: c.czxid, TTL: ttl}, nil
}

// isFirst reports whether our node is the first on the name. It joins the queue if we are
// not in it.
func (c *claim) isFirst(ctx context.Context) (bool, error) {
	s, w := c.session, c.waiting
	switch {
	case c.path == "":
		if c.noWait && c.creation == nil {
			if taken, err := s.taken(ctx, c.parent()); err != nil || taken {
				return false, err
			}
		}
		alone, err := c.join(ctx)
		if err != nil || alone {
			return alone, err
		}
	case !s.lives(c.id):
		return false, fmt.Errorf("%w: %w", errPlaceLost, zk.ErrSessionExpired)
	case w == nil:
	case w.first && c.watch.armed():
		return true, nil
	case w.ahead != "" && !w.watch.fired() && !c.watch.fired():
		// In a queue of ten thousand, each waiter looks every few seconds. Lists would
		// bring the servers down. One small question does.
		stat, err := s.exists(ctx, w.ahead)
		if err != nil {
			return false, err
		}
		if stat != nil {
			return false, nil
		}
	}
	queue, err := s.queue(ctx, c.parent())
	if err != nil {
		return false, err
	}
	position := slices.IndexFunc(queue, func(n node) bool { return n.name == path.Base(c.path) })
	switch {
	case position < 0:
		return false, fmt.Errorf("%w: somebody has deleted %s", errPlaceLost, c.path)
	case position > 0:
		c.waiting = &waiting{ahead: c.parent() + "/" + queue[position-1].name, next: position == 1}
		if w != nil && w.ahead == c.waiting.ahead && w.watch.refused() {
			c.waiting.watch = w.watch
		}
	}
	return position == 0, nil
}

// promise returns the lease of the session for a request of ttl, counted from an
// instant of this call on. Before that, it confirms the session, by a write sent at
// most maxAge before that instant. A renewed lock gets the most there is: a node cannot
// go from session to session, and Extend may ask for more than the lock was taken with.
func (c *claim) promise(ctx context.Context, from time.Time, ttl, maxAge time.Duration) (time.Duration, error) {
	s := c.session
	lease := s.lease()
	most := lease - lease/sharing
	if ttl > most && c.fixed {
		return 0, fmt.Errorf("%w: the TTL is %v, but the session of %v that this fixed term lives by allows %v at the most: "+
			"it is made for the TTL that the lock is taken with", distlock.ErrInvalid, ttl, s.conn.Timeout(), most)
	}
	granted := min(ttl, most)
	err := s.confirmSession(ctx, c.id, from.Add(-min(maxAge, lease-granted)))
	if err == nil && s.lease() < lease { // the answer came by another connection, which was granted less
		return c.promise(ctx, from, ttl, maxAge)
	}
	return granted, err
}

// join makes our node, and never two of them. It reports whether ours was the only one.
// If it reports false, others may be there. It asks once: where the node of the name went
// missing, or it is certain that ours was not made, the error is of fate Again.
func (c *claim) join(ctx context.Context) (alone bool, err error) {
	names, parent := &c.session.store.names, c.parent()
	var denied error
	if c.creation == nil {
		if !names.has(parent) {
			if denied, err = c.makeName(ctx); err != nil {
				return false, err
			}
			names.add(parent)
		}
		c.create(ctx)
	}
	n := c.creation
	if err := c.resolve(ctx); err != nil {
		return false, err // and n may still change
	}
	if c.path != "" {
		return n.alone, nil
	}
	switch fate := driver.FateOf(n.err); {
	case n.err == nil || fate == driver.Unknown: // made in a session that has ended, or not made
		return false, &driver.Fault{Fate: driver.Again, Err: cmp.Or(n.err, zk.ErrSessionExpired)}
	case fate == driver.Again: // the servers have removed it as empty before we were in it
		names.remove(parent)
		c.bare = false
		return false, cmp.Or(denied, n.err)
	}
	return false, n.err
}

// creation is the request for our node. It may be on its way for longer than the call
// that sent it, so it has no part of the claim.
type creation struct {
	session int64
	sent    time.Time // before it was sent

	done  chan struct{} // closed when the request has returned; the fields below are set then
	path  string
	czxid int64
	alone bool // it was the only child then
	err   error
}

// create asks for our node. If it is the only one, it has the lock, with one request:
// the second operation of the transaction tells how the parent looks after the first.
// It also tells our czxid, as the parent's mzxid.
//
// The order after that matters, since a reply may be lost or late:
//
//	create     done ----------------------------------> adopt the node, if the session
//	           |                                        is still the one that made it
//	           +- refused: there is no node
//	           +- no reply ---> write, list ----------> adopt it, or delete it, or it is
//	           |                (find)                  certain that there is none
//	           +- ctx ends ---> the next call waits for done, and goes on there
func (c *claim) create(ctx context.Context) {
	s, stem, parent, holder := c.session, c.stem, c.parent(), c.holder
	n := &creation{session: s.conn.SessionID(), sent: time.Now(), done: make(chan struct{})}
	c.creation = n
	_, _ = driver.Detach(ctx, func() (none struct{}, _ error) {
		defer close(n.done)
		_, n.err = send(s, func() (struct{}, error) {
			results, err := s.conn.Multi(
				&zk.CreateRequest{Path: stem, Data: []byte(holder), Acl: s.store.opts.ACL, Flags: zk.FlagEphemeralSequential},
				&zk.SetDataRequest{Path: parent, Version: -1})
			if err == nil {
				err = n.take(stem, results)
			}
			return none, err
		})
		return none, nil
	})
}

// take notes what the servers have answered.
func (n *creation) take(stem string, results []zk.MultiResponse) error {
	if len(results) != 2 || results[1].Stat == nil || !strings.HasPrefix(results[0].String, stem) {
		return errGarbled
	}
	stat := results[1].Stat
	n.path, n.czxid, n.alone = results[0].String, stat.Mzxid, stat.NumChildren == 1
	return nil
}

// resolve waits for the outcome of the creation, if there is one, and makes the node
// ours. Nothing else is done for the claim before that. Otherwise a creation still on
// its way would come after it. An error means that the outcome is not known.
func (c *claim) resolve(ctx context.Context) error {
	n, s := c.creation, c.session
	if n == nil {
		return nil
	}
	select {
	case <-n.done:
	case <-ctx.Done():
		return s.fault(ctx.Err())
	}
	switch {
	case n.err == nil && n.session != 0 && s.lives(n.session):
		s.confirm(n.session, n.sent)
		c.found(n.path, n.session, n.czxid)
	case n.err == nil || driver.FateOf(n.err) == driver.Unknown || errors.Is(n.err, distlock.ErrClosed):
		if err := c.find(ctx); err != nil {
			return err
		}
	}
	c.creation = nil
	return nil
}

// found notes that a node is ours. The stem shares its memory.
func (c *claim) found(path string, session, czxid int64) {
	c.path, c.id, c.czxid = path, session, czxid
	c.watch, c.waiting, c.bare = nil, nil, false
	c.stem = path[:len(c.stem)]
}

// find looks for a node of ours, and adopts it if it lives by the present session. If
// it does not, its session has expired: it is about to go, and its order in the queue
// is worth nothing. So find removes it.
func (c *claim) find(ctx context.Context) error {
	s, parent := c.session, c.parent()
	// The reconnected server may be behind, and not show a node that is there. A write
	// of our own brings it past that. A sync would not always: a leader without a
	// majority still answers one.
	if _, err := request(ctx, s, s.write); err != nil {
		return err
	}
	queue, err := s.queue(ctx, parent)
	if err != nil {
		return err
	}
	for _, n := range queue {
		if n.owner != c.owner() {
			continue
		}
		found := parent + "/" + n.name
		stat, err := s.exists(ctx, found)
		if err == nil && stat != nil && s.lives(stat.EphemeralOwner) {
			c.found(found, stat.EphemeralOwner, stat.Czxid)
		} else if err == nil && stat != nil {
			_, err = request(ctx, s, s.remove(found))
		}
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}

// Release implements driver.Claim.
func (c *claim) Release(ctx context.Context) error {
	err := c.leave(ctx)
	if c.session == nil || errors.Is(err, distlock.ErrClosed) {
		return err // all is done, or ends with its session
	}
	c.stopAfterFunc()
	if !c.left { // once: if it is among them no more, its node is gone, and its use of the session over
		c.left = true
		c.session.addLeftover(copyOf(c), time.Now())
	}
	return err
}

// leave is Release for a claim that may be used again after an error.
func (c *claim) leave(ctx context.Context) error {
	s := c.session
	if s == nil {
		return nil
	}
	lost, err := c.remove(ctx)
	if err != nil {
		return err
	}
	c.stopAfterFunc()
	if c.left {
		// That there is no node does not mean that the lock was lost: the session deletes it
		// too, and may have done so just now, before it drops the claim.
		there, untouched := s.leftovers.drop(c.stem)
		lost = lost && (untouched || !s.lives(c.id))
		if !there {
			c.session = nil // that use of it is over
		}
	}
	c.quit()
	if lost {
		return distlock.ErrLost
	}
	return nil
}

// bytes is what the node takes in the record that ends its session: its length, and its path with the number of ten digits.
func (c *claim) bytes() int { return 4 + len(c.stem) + 10 }

// quit ends the use of the session. Nothing of the claim is left.
func (c *claim) quit() {
	if c.session != nil {
		c.class.leave(c.bytes())
	}
	c.path, c.session, c.waiting, c.won = "", nil, nil, false
}

// remove deletes our node, if there may be one. It reports whether a lock was lost
// before.
func (c *claim) remove(ctx context.Context) (lost bool, err error) {
	s := c.session
	if err := c.resolve(ctx); err != nil {
		return false, err
	}
	if c.path == "" {
		return false, c.removeName(ctx)
	}
	send := request[struct{}]
	if c.won {
		send = requestOnce // the engine repeats it: it knows until when we were the holder
	}
	_, err = send(ctx, s, s.remove(c.path))
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return false, err
	}
	// With another session than ours, the node was a leftover that the servers had not
	// come to yet.
	return c.won && (err != nil || !s.lives(c.id)), nil
}

// stopAfterFunc ends what WrapLock has begun.
func (c *claim) stopAfterFunc() {
	if c.forget != nil {
		c.forget()
		c.forget = nil
	}
}
