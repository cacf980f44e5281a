// Package zklock takes locks on Apache ZooKeeper.
//
//	locker, err := zklock.New(conn, nil)                          // on your own *zk.Conn
//	locker, err := zklock.Open(ctx, "zk://host1,host2,host3", nil) // or on one of its own
//
// Every claim on a name is an ephemeral sequential node. The first node has the lock:
// first come, first served over all processes. Locks of about the same TTL live by one
// session, so one request renews them all. What is stored, what is guaranteed, and what to set:
// https://github.com/distlock-go/distlock/blob/main/docs/zookeeper.md
package zklock

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/zklock/internal/wire"
)

// DefaultPrefix is the path of the locks where Options name none.
const DefaultPrefix = "/distlock"

// Options configure a Locker on ZooKeeper. The zero value, and nil, mean the defaults.
// A TTL of 0 means distlock.DefaultTTL, or three quarters of the longest lease allowed
// by the servers if that is less.
type Options struct {
	distlock.Options

	// Prefix is the path above the locks, like "/app/locks". It is made when the first
	// lock is taken. Lockers exclude each other if they have the same. Empty means
	// DefaultPrefix.
	Prefix string

	// SessionTimeout is the longest session that Open asks the servers for. They may
	// grant less or more. The longest TTL is a good half of what they grant. 0 means as
	// long as they grant. A lock lives by a session of about twice its TTL.
	//
	// New finds out the timeout of a connection by itself, if it is connected. If it
	// is not, SessionTimeout must be given. It must not be more than the servers grant:
	// by default, they grant 20 ticks at the most. If a server that the connection goes to
	// later grants less, as with a lower maxSessionTimeout, leases granted from then on are
	// shorter. It may end the session before the Deadline of those that were granted before,
	// also with Open. Give the least that any server grants.
	SessionTimeout time.Duration

	// TickTime is the tickTime of the servers. Leases are shorter by half of it. It
	// must not be less than theirs. 0 means 3 s, or half a session if that is less.
	TickTime time.Duration

	// ACL is what new nodes get. Nil means that everybody may do everything.
	ACL []zk.ACL
}

// Locker takes locks on one ZooKeeper ensemble. It is safe for concurrent use.
type Locker struct {
	*driver.Client
}

// Lock is a lock on ZooKeeper. It is safe for concurrent use.
type Lock struct {
	*driver.Handle
	path string
}

var (
	_ distlock.Locker = (*Locker)(nil)
	_ distlock.Lock   = (*Lock)(nil)
)

// Path returns the path of the lock's node. To fence a write to ZooKeeper, put it into
// one Multi with a zk.CheckVersionRequest of this path and version 0. It then fails if
// the lock has been lost.
func (l *Lock) Path() string { return l.path }

// New returns a Locker on a connection of the user. Close leaves that connection open.
// All its locks live by the session of the connection. So the name of a dead holder
// stays held for as long as the session, whatever the TTL. The locks end with the
// session; later ones live by the next. If the server falls silent, the locks are lost
// with it. Open owns its connections, so it can leave the server in time. Here, a server
// that accepts a connection and then says nothing holds up the library for almost seven
// sessions, unless the user's own zk.WithDialer ends such connections. New sends no
// request. It fails with distlock.ErrInvalid if an option is not allowed, or if the
// session timeout cannot be known.
//
// Closing the Locker leaves the connection as it was, with two exceptions. If a waiter
// gave up, its watch stays on the node of the holder: the library cannot remove
// watches. And nodes that could not be deleted, as no server answered, are deleted
// later, by a goroutine that ends with the last of them, with the session or with the
// connection.
func New(conn *zk.Conn, o *Options) (*Locker, error) {
	opts, err := o.checked()
	if err == nil && conn == nil {
		err = fmt.Errorf("%w: the *zk.Conn is nil", distlock.ErrInvalid)
	}
	if err != nil {
		return nil, opened(err)
	}
	timeout, err := sessionTimeout(conn, opts.SessionTimeout)
	if err != nil {
		return nil, opened(err)
	}
	return newLocker(newStoreOn(conn, opts, timeout))
}

// store makes claims on names.
type store struct {
	opts     Options
	target   *wire.Target // nil if the connection is the user's
	auth     string       // user:password
	caps     driver.Capabilities
	idleTime time.Duration
	maxBytes int // of a class
	names    knownNames

	noContainers atomic.Pointer[time.Time] // until when the servers are taken not to know them; nil if they may

	// Which session a TTL has; see classFor.
	main    *class        // for locks of the Locker's own TTL; the only one if the connection is the user's
	ttl     time.Duration // the Locker's own
	mainTTL time.Duration // the longest in the session of main
	longest time.Duration // the longest session that the servers grant, or that may be asked for

	mu      sync.Mutex
	classes map[time.Duration]*class // by the session asked for

	life context.Context // ends with the user's connection, and with Close
	end  context.CancelFunc
}

var (
	_ driver.Driver      = (*store)(nil)
	_ driver.LockWrapper = (*store)(nil)
	_ driver.Inspector   = (*store)(nil)
	_ driver.Breaker     = (*store)(nil)
)

func newStore(o Options) *store {
	d := &store{opts: o, idleTime: idleTime, maxBytes: maxBytes, classes: make(map[time.Duration]*class)}
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

// newStoreOn returns the store on a connection of the user.
func newStoreOn(conn *zk.Conn, o Options, timeout time.Duration) *store {
	d := newStore(o)
	s := newSession(d, wire.OfUser(conn, timeout))
	d.main = &class{store: d, keep: true, session: s, ready: true}
	d.declare(timeout)
	go func() {
		defer d.end()
		select {
		case <-s.conn.Closed:
		case <-d.life.Done():
		}
	}()
	return d
}

// newLocker returns a Locker over d. d is complete.
func newLocker(d *store) (*Locker, error) {
	if d.caps.MaxTTL < minTTL {
		_ = d.Close()
		return nil, opened(fmt.Errorf("%w: a session of %v allows no TTL of %v or more with ticks of %v",
			distlock.ErrInvalid, d.main.session.conn.Timeout(), minTTL, d.opts.TickTime))
	}
	o := d.opts.Options
	o.TTL = d.defaultTTL()
	client, err := driver.New(d, &o)
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return &Locker{client}, nil
}

// minTTL is the shortest lease: the servers write a renewal to their disks, which may take tens of milliseconds.
const minTTL = 100 * time.Millisecond

// defaultTTL returns the TTL of calls without one of their own. If the Locker was given
// none either, a quarter of the lease at least stays in reserve. So a waiter need not
// confirm its session when it wakes up: it did when it last looked.
func (d *store) defaultTTL() time.Duration {
	if d.opts.TTL != 0 {
		return d.opts.TTL
	}
	return max(minTTL, min(distlock.DefaultTTL, d.main.session.lease()*3/4))
}

// declare fixes the capabilities, for sessions of a length or less.
func (d *store) declare(longest time.Duration) {
	tick := tickOf(d.opts.TickTime, longest)
	d.caps = driver.Capabilities{
		Backend:    "zookeeper",
		Fair:       true,
		Push:       true,
		Durability: driver.Quorum,
		MinTTL:     minTTL,
		MaxTTL:     longestTTL(longest, tick),
		// The holder of a fixed term may die just before its end, and the servers have heard from its session until then. The
		// leader learns of the last request half a tick late, and then rounds up by a tick.
		ExpiryLag: longest + 2*tick,
		MaxExtend: 1.25, // a session allows 1.26 times the TTL that the lock was taken with, or more
	}
}

// Capabilities implements driver.Driver.
func (d *store) Capabilities() driver.Capabilities { return d.caps }

// Claim implements driver.Driver.
func (d *store) Claim(r driver.Request) driver.Claim {
	return &claim{class: d.classFor(r.TTL), stem: stemOf(d.nodeOf(r.Name), r.Owner), holder: r.Holder,
		ttl: r.TTL, noWait: r.NoWait, fixed: r.NoRenewal}
}

// WrapLock implements driver.LockWrapper. If the user closes the connection, the locks
// on it end. Then each lock is extended, and that is refused for good. So the holder
// learns of it at once. The next renewal would be too late: others would have had the
// name for long. If the Locker is closed and the connection stays, so does what Close
// has not deleted: a record, or a lock that the servers did not answer for. It goes when
// its term is over.
func (d *store) WrapLock(h *driver.Handle, claimed driver.Claim) distlock.Lock {
	c := claimed.(*claim)
	if d.target == nil {
		left := copyOf(c)
		c.forget = context.AfterFunc(d.life, func() {
			if _ = h.Extend(context.Background(), left.ttl); !left.session.conn.IsClosed() {
				left.session.addLeftover(left, h.Deadline())
			}
		})
	}
	return &Lock{Handle: h, path: c.path}
}

// Close implements io.Closer.
func (d *store) Close() error {
	d.closeAll(closeTime)
	return nil
}

// closeAll ends all sessions, with the patience of wire.Conn.Close.
func (d *store) closeAll(patience time.Duration) {
	d.end()
	d.mu.Lock()
	defer d.mu.Unlock()
	var all sync.WaitGroup
	for _, c := range d.classes {
		all.Go(func() { c.close(patience) })
	}
	all.Wait()
}

// sessionTimeout returns the timeout of the sessions of a connection of the user. A wrong
// guess would be the end of mutual exclusion. So where the library does not tell, the user
// has to.
func sessionTimeout(conn *zk.Conn, given time.Duration) (time.Duration, error) {
	switch granted := wire.TimeoutOf(conn); {
	case granted == 0 && given == 0:
		return 0, fmt.Errorf("%w: the session timeout is not known, since the connection has no session yet: "+
			"wait for zk.StateHasSession, or set SessionTimeout", distlock.ErrInvalid)
	case granted != 0 && given > granted:
		return 0, fmt.Errorf("%w: the session timeout is %v, but the servers have granted %v",
			distlock.ErrInvalid, given, granted)
	default:
		return cmp.Or(given, granted), nil
	}
}
