package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// listener is what a claim knows of its own node by a watch. A lock that is held has
// one for as long as it is, so it is no more than the channel: what else a
// subscription needs while it is made is dropped then.
type listener struct {
	events  <-chan zk.Event // of the latest watch; nil if there was none
	setting *watch          // the next one, which may still be set by another goroutine
	gone    bool            // the node is, for good
}

// prepare returns what subscribes to our node if that is needed, and nil if not.
func (c *claim) prepare() func() {
	if c.gone || c.setting != nil || c.silent() {
		return nil
	}
	w, conn, path := newWatch(), c.driver.conn, c.path
	c.setting = w
	return func() { w.set(conn, path) }
}

// listen subscribes if that is needed.
func (c *claim) listen() {
	if set := c.prepare(); set != nil {
		set()
	}
}

// settle blocks until the subscription is made, and returns zk.ErrNoNode if our node
// is known to be gone. After another error, it has to be prepared again.
func (c *claim) settle(ctx context.Context) error {
	if w := c.setting; w != nil {
		select {
		case <-w.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
		c.setting, c.events = nil, w.events
		switch {
		case errors.Is(w.err, zk.ErrNoNode):
			c.gone = true
		case w.err != nil:
			return w.err
		default:
			c.czxid = w.czxid
		}
	}
	if c.heard(); c.gone {
		return zk.ErrNoNode
	}
	return nil
}

// note takes what came of events. Nothing else may read them.
func (l *listener) note(e zk.Event) {
	if e.Type == zk.EventNodeDeleted {
		l.gone = true // such a node never comes back, its number is taken
	}
}

// heard reports whether the watch has nothing more to tell.
func (l *listener) heard() bool {
	select {
	case e := <-l.events:
		l.note(e)
		return true
	default:
		return l.gone
	}
}

// silent reports whether there is a watch that has told nothing: then the node is
// there, as far as this client can know.
func (l *listener) silent() bool { return l.events != nil && l.setting == nil && !l.heard() }
