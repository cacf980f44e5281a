package zklock

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/zklock/internal/wire"
)

// class is the locks of about the same TTL. They share a session. The nodes of a dead
// holder stay until its session ends, so a short TTL needs a short session. The first
// use opens the session, and some time after the last leave closeIdle closes it. It may
// do so under an open that its caller has left, so open looks afterwards whether the session
// is still the same.
type class struct {
	store   *store
	ask     time.Duration // the timeout that the servers are asked for
	keep    bool          // it is never closed for want of use
	opening semaphore

	mu      sync.Mutex
	session *session // nil if there is none
	ready   bool     // the servers have granted it
	closed  bool     // by Close
	users   int
	bytes   int            // of their nodes, in the record that ends the session
	next    *class         // for what has no room; nil if there is none
	idle    *time.Timer    // running while there are no users
	ending  sync.WaitGroup // what closeIdle has begun; it begins nothing once closed is set
}

// idleTime is how long a session without users is kept: a new one costs two writes on
// the servers.
const idleTime = 5 * time.Minute

// closeTime bounds the wait for the servers to confirm that a session is closed. The
// Locker has less time for all that Close takes than the library would wait.
const closeTime = 500 * time.Millisecond

// classStep is how much neighbouring classes differ. A session serves TTLs down to four
// fifths of the one that it is made for.
const classStep = 4

// classFor returns the class of a TTL. Its session is 2 to 2.5 TTLs and three quarters
// of a tick long, if the servers grant one as short. TTLs of less than a quarter of a
// tick share one, as by default no session is shorter than two ticks. So with default
// settings there are 17 at the most.
func (d *store) classFor(ttl time.Duration) *class {
	return d.sizedFor(ttl).withRoom()
}

func (d *store) sizedFor(ttl time.Duration) *class {
	if d.target == nil || ttl > d.ttl-d.ttl/(classStep+1) && ttl <= d.mainTTL {
		return d.main
	}
	tick := cmp.Or(d.opts.TickTime, defaultTick)
	longest := tick / 4
	for longest < ttl {
		longest += longest / classStep
	}
	return d.classOf(min(sessionOf(longest, tick), d.longest))
}

// classOf returns the class that asks the servers for a session with the timeout ask.
func (d *store) classOf(ask time.Duration) *class {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.classes[ask]
	if c == nil {
		c = newClass(d, ask)
		d.classes[ask] = c
	}
	return c
}

// maxBytes is what the nodes of a session may take in the record that ends it. The servers write one of any length, and read
// none beyond jute.maxbuffer and as much again, two megabytes by default: neither the followers nor a server that starts can
// have it then (ZOOKEEPER-4306). Calls that are under way together may exceed this by the rest.
const maxBytes = 900 << 10

// withRoom returns c, or the first of those behind it that has room for more nodes. The user's connection is the only one.
func (c *class) withRoom() *class {
	for {
		c.mu.Lock()
		full := c.bytes >= c.store.maxBytes && c.store.target != nil
		if full && c.next == nil {
			c.next = newClass(c.store, c.ask)
			c.next.closed = c.closed
		}
		next := c.next
		c.mu.Unlock()
		if !full {
			return c
		}
		c = next
	}
}

// errFull is what a claim is told on the user's connection.
var errFull = errors.New("the session of the connection has as many nodes as the servers can end with it: " +
	"give others a Locker with a connection of its own, or use Open")

func newClass(d *store, ask time.Duration) *class {
	return &class{store: d, ask: ask, opening: make(semaphore, 1)}
}

// use returns the session, for a node of so many bytes. It stays open until the caller calls leave.
func (c *class) use(ctx context.Context, bytes int) (*session, error) {
	c.mu.Lock()
	if c.store.target == nil && c.bytes+bytes > c.store.maxBytes {
		c.mu.Unlock()
		return nil, &driver.Fault{Fate: driver.Answered, Err: errFull}
	}
	c.users++
	c.bytes += bytes
	c.stopIdle()
	s, ready := c.session, c.ready
	c.mu.Unlock()
	if ready {
		return s, nil
	}
	err := c.opening.do(ctx, func() error { return c.open(ctx) })
	c.mu.Lock()
	s = c.session
	c.mu.Unlock()
	if err != nil {
		c.leave(bytes)
		if s != nil {
			err = s.fault(err) // and tells why it took so long
		}
		return nil, err
	}
	return s, nil
}

func (c *class) leave(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
	c.bytes -= bytes
	c.startIdle()
}

// startIdle has the session closed some time after the last user has left. c.mu is held.
func (c *class) startIdle() {
	if c.users == 0 && !c.keep && c.session != nil && !c.closed {
		c.idle = time.AfterFunc(c.store.idleTime, c.closeIdle)
	}
}

// stopIdle stops the timer, which keeps the store and all its buffers in memory. c.mu is held.
func (c *class) stopIdle() {
	if c.idle != nil {
		c.idle.Stop()
	}
}

// open connects, and returns when the servers have granted the session. If no server
// can be reached, the session is kept: the library goes on trying.
func (c *class) open(ctx context.Context) (err error) {
	c.mu.Lock()
	if c.closed {
		err = distlock.ErrClosed
	} else if c.session == nil {
		var conn *wire.Conn
		if conn, err = wire.Dial(*c.store.target, c.ask); err == nil {
			c.session = newSession(c.store, conn)
			c.startIdle() // the last user may have left before there was a session
		}
	}
	s, ready := c.session, c.ready
	c.mu.Unlock()
	if err != nil || ready {
		return err
	}
	if err = s.handshake(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != s { // closed meanwhile, as the caller has left
		return zk.ErrClosing
	}
	c.ready = true
	return nil
}

// closeIdle closes the session if it has no users, and does not wait for that.
func (c *class) closeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.session; s != nil && c.users == 0 && !c.closed {
		c.session, c.ready = nil, false
		c.ending.Go(func() { s.conn.Close(closeTime) })
	}
}

// close ends the class and those behind it, with the patience of wire.Conn.Close. It waits for closeIdle, too.
func (c *class) close(patience time.Duration) {
	c.mu.Lock()
	c.closed = true
	c.stopIdle()
	s, next := c.session, c.next
	c.mu.Unlock()
	if next != nil {
		var others sync.WaitGroup
		others.Go(func() { next.close(patience) })
		defer others.Wait()
	}
	if s != nil {
		s.conn.Close(patience)
	}
	c.ending.Wait()
}
