package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
)

// claim is a node in the queue of a name, or the attempt to make one. It is kept for
// as long as the lock, so it has little more than what a holder needs: what its path
// begins with is a part of that once it is known, and uses its memory.
//
// Try, Wait and Release call the library on the caller's goroutine, and the library
// heeds no contexts: a call that hangs ends when the library gives up the
// connection, after two thirds of the session, or when that is closed. The portable
// half calls from goroutines that nobody depends on, and makes the next call of the
// claim when this one has returned; a goroutine of ours for each call would have to
// wait just as long before the next one, and be paid for with each call.
type claim struct {
	driver *driver
	stem   string // what the path of our node begins with, up to its number
	holder string
	ttl    time.Duration

	path    string // of our node; "" if none is known
	session int64  // which our node lives by
	czxid   int64  // 0 if it is not known yet
	ahead   string // the node in front of ours when we last looked; "" if there is none

	listener // to our node

	noWait bool
	unsure bool // a node may have been created: the reply to that was lost
	next   bool // the node ahead was the only one in front
	first  bool // and it is gone since
	won    bool
}

// Try implements distlock.Claim.
func (c *claim) Try(ctx context.Context) (distlock.Grant, error) {
	d, joining := c.driver, c.path == ""
	children, err := c.look(ctx)
	if err != nil {
		return distlock.Grant{}, err
	}
	before, place := inLine(children, path.Base(c.path))
	if place < 0 {
		return distlock.Grant{}, c.deleted()
	}
	if joining {
		d.parents.setCrowded(c.parent(), place > 0)
	}
	if place > 0 {
		c.ahead, c.next = c.parent()+"/"+before, place == 1
		return distlock.Grant{}, c.held()
	}
	// The list was read on one server, and may be old. It cannot be too old to
	// show a claim before ours, as it shows ours. But that our own session is
	// still alive has to be said by a majority.
	c.ahead = ""
	if c.czxid == 0 {
		c.listen()
		err := c.settle(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			err = c.deleted()
		}
		if err != nil {
			return distlock.Grant{}, err
		}
	}
	if err := d.prove(ctx, c.session, c.ttl, c.ttl); err != nil {
		return distlock.Grant{}, err
	}
	c.won = true
	return distlock.Grant{Token: c.czxid, TTL: c.ttl}, nil
}

func (c *claim) deleted() error {
	return fmt.Errorf("the place in the queue is lost: somebody has deleted %s", c.path)
}

// held is what Try returns behind another claim.
func (c *claim) held() error {
	if c.noWait {
		if err := c.release(); err != nil {
			return err // a place may be left in the queue, so Release has to come
		}
	}
	return distlock.ErrHeld
}

// look returns the children of the name's node, ours among them, and joins the
// queue if we are not in it. Its error is ErrHeld if nothing has changed.
func (c *claim) look(ctx context.Context) ([]string, error) {
	d := c.driver
	if c.path == "" {
		return c.join(ctx)
	}
	if d.conn.SessionID() != c.session {
		return nil, zk.ErrSessionExpired // and with it our place
	}
	if c.first && c.silent() {
		return []string{path.Base(c.path)}, nil
	}
	c.first = false
	// In a queue of ten thousand, each of whom looks every few seconds, the list
	// is what would bring the servers down. One small question does.
	if c.ahead != "" && !d.watches.fired(c.ahead) && !c.heard() {
		var there bool
		err := again(ctx, func() (err error) {
			there, _, err = d.conn.Exists(c.ahead)
			return err
		})
		if err != nil {
			return nil, err
		}
		if there {
			return nil, distlock.ErrHeld
		}
	}
	return d.children(ctx, c.parent())
}

// joinTries bounds the rounds of join: the name's node may have to be made, the
// server may remove it as empty before we are in it, and a reply may be lost.
const joinTries = 4

// join makes our node, however often that takes, and never two of them.
func (c *claim) join(ctx context.Context) (children []string, err error) {
	for range joinTries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if c.unsure {
			children, err = c.find(ctx)
			if err != nil || c.path != "" {
				return children, err
			}
		}
		// Who may not make it may still find it there, made by an administrator.
		denied := c.makeParent(ctx)
		if denied != nil && !errors.Is(denied, zk.ErrNoAuth) {
			return nil, denied
		}
		children, err = c.create(ctx)
		switch {
		case err == nil || c.path != "":
			return children, err
		case errors.Is(err, zk.ErrNoNode) && denied != nil:
			return nil, denied
		case errors.Is(err, zk.ErrNoNode):
			c.driver.parents.remove(c.parent())
		case !broken(err) && !errors.Is(err, zk.ErrSessionExpired): // the next session is as good
			return nil, err
		}
	}
	return nil, err
}

// makeParent makes the node of the name, unless it was there lately.
func (c *claim) makeParent(ctx context.Context) error {
	parent := c.parent()
	if c.driver.parents.has(parent) {
		return nil
	}
	err := c.driver.makeNode(ctx, parent, zk.FlagContainer)
	if err == nil {
		c.driver.parents.add(parent)
	}
	return err
}

// create makes our node, and where it is alone, that is all it takes to have the
// lock. On a name that others have had or wanted when this process last looked, the
// list is needed anyway, and a request that makes the node alone is a third less
// work for the servers than that transaction.
func (c *claim) create(ctx context.Context) ([]string, error) {
	d, parent := c.driver, c.parent()
	session := d.conn.SessionID()
	c.unsure = true
	sent := time.Now()
	request := c.createAndLook
	if d.parents.crowded(parent) {
		request = c.createOnly
	}
	made, err := request()
	if errors.Is(err, zk.ErrNoNode) {
		c.unsure = false
	}
	if err != nil {
		return nil, err
	}
	if session == 0 || session != d.conn.SessionID() {
		return nil, zk.ErrSessionExpired // or so it seems; find will tell whose the node is
	}
	c.unsure = false
	c.found(made.path, session, made.czxid)
	d.proved(session, sent)
	if made.alone {
		return []string{path.Base(c.path)}, nil
	}
	return d.children(ctx, parent)
}

// creation is what the servers tell of a node that they have made.
type creation struct {
	path  string
	czxid int64 // 0 if they do not tell
	alone bool  // it is the only child
}

// createAndLook makes our node and touches its parent: the second operation of the
// transaction tells how the parent looks after the first. That is also where our
// czxid is to be had, the same as the parent's mzxid. A list that is asked for in
// the same round trip would prove it as well, but costs a request.
func (c *claim) createAndLook() (creation, error) {
	results, err := c.driver.conn.Multi(
		&zk.CreateRequest{Path: c.stem, Data: []byte(c.holder), Acl: c.driver.acl, Flags: zk.FlagEphemeralSequential},
		&zk.SetDataRequest{Path: c.parent(), Version: -1})
	if err != nil {
		return creation{}, err
	}
	parent := results[1].Stat
	return creation{results[0].String, parent.Mzxid, parent.NumChildren == 1}, nil
}

func (c *claim) createOnly() (creation, error) {
	made, err := c.driver.conn.Create(c.stem, []byte(c.holder), zk.FlagEphemeralSequential, c.driver.acl)
	return creation{path: made}, err
}

// found notes which node is ours.
func (c *claim) found(path string, session, czxid int64) {
	c.path, c.session, c.czxid = path, session, czxid
	c.listener = listener{}
	c.stem = path[:len(c.stem)]
}

// stemOf returns what the paths of the claims of an owner begin with.
func stemOf(parent, owner string) string { return parent + "/" + claimPrefix + owner + "-" }

func (c *claim) parent() string {
	return c.stem[:len(c.stem)-len("/")-len(claimPrefix)-ownerDigits-len("-")]
}

func (c *claim) owner() string {
	return c.stem[len(c.stem)-ownerDigits-len("-") : len(c.stem)-len("-")]
}

// find learns what became of a creation whose reply was lost, and adopts the node
// if it lives by the present session. If it does not, its session has expired: it
// is about to go, and its order in the queue is worth nothing.
func (c *claim) find(ctx context.Context) ([]string, error) {
	d := c.driver
	// The reconnected server may be behind, and not show a node that is there. A
	// write of our own brings it past that. A sync would not always: a leader
	// that has lost its majority still answers one.
	if err := again(ctx, d.write); err != nil {
		return nil, err
	}
	children, err := d.children(ctx, c.parent())
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	for _, n := range lineup(children) {
		if n.owner != c.owner() {
			continue
		}
		found := c.parent() + "/" + n.name
		there, stat, err := d.conn.Exists(found)
		switch {
		case err != nil:
			return nil, err
		case there && stat.EphemeralOwner == d.conn.SessionID():
			c.found(found, stat.EphemeralOwner, stat.Czxid)
		case there:
			if err := d.conn.Delete(found, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
				return nil, err
			}
		}
	}
	c.unsure = false
	return children, nil
}

// Wait implements distlock.Claim. It watches the claim ahead alone, so that a
// release wakes one waiter, and our own node, which a session takes along when it
// expires.
//
// Nobody can come in between: a node that is made later is behind ours. So if the
// node ahead was the only one and the servers say that it is gone, ours is the
// first, and Try need not list the queue to learn that.
func (c *claim) Wait(ctx context.Context) error {
	ahead := c.driver.watches.on(c.ahead)
	if err := ahead.await(ctx); err != nil {
		c.first = c.next && errors.Is(err, zk.ErrNoNode)
		return ctx.Err() // or nil: the node is gone, or the connection broke; Try will see
	}
	c.listen()
	if c.settle(ctx) != nil {
		return ctx.Err()
	}
	select {
	case e := <-ahead.events:
		ahead.note(e)
		c.first = c.next && ahead.deleted.Load()
	case e := <-c.events:
		c.note(e)
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Renew implements distlock.Claim.
func (c *claim) Renew(ctx context.Context, ttl time.Duration) (distlock.Grant, error) {
	batch := []distlock.Renewal{{Claim: c, TTL: ttl}}
	c.driver.RenewBatch(ctx, batch)
	return batch[0].Grant, batch[0].Err
}

// Release implements distlock.Claim.
func (c *claim) Release(ctx context.Context) error {
	if c.unsure {
		if _, err := c.find(ctx); err != nil {
			return err
		}
	}
	return c.release()
}

// release deletes our node. A request that got no reply is not repeated here but
// by the portable half, which knows until when we were the holder.
func (c *claim) release() error {
	d := c.driver
	if c.path == "" {
		return nil
	}
	err := d.conn.Delete(c.path, -1)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	// With another session than ours, the node was a leftover that the servers
	// had not come to yet.
	lost := c.won && (err != nil || c.session != d.conn.SessionID())
	c.path, c.won = "", false
	if lost {
		return distlock.ErrLost
	}
	return nil
}
