// Package zklock takes locks on Apache ZooKeeper.
//
// Every claim on a name is an ephemeral sequential node. The first node has the lock:
// first come, first served over all processes. Locks of about the same TTL live by one
// session, so one request renews them all.
//
//	open.go     URL and options, the first connection
//	claim.go    one claim: take the lock, renew it, give it back
//	wait.go     watches, and how a waiter learns of a release
//	class.go    which locks share a session
//	session.go  one session: its lease, its confirmation, requests
//	fault.go    the one sender of requests, and what a failed one may have done
//	dialer.go   the TCP connections of a session; stream.go: one of them
//	leftover.go what has to be deleted after its release has failed
//	names.go    what a name and a claim look like in the store
//	operate.go  Inspect, List and Break
//
// docs/zookeeper.md says what is stored, what is guaranteed, and what to set.
package zklock

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
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
	// New finds out the time-out of a connection by itself, if it is connected. If it
	// is not, SessionTimeout must be given. It must not be more than the servers grant:
	// by default, they grant 20 ticks at the most.
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
// with it. Open owns its connections, so it can leave the server in time. New sends no
// request. It fails with distlock.ErrInvalid if an option is not allowed, or if the
// session time-out cannot be known.
//
// Closing the Locker leaves the connection as it was, with two exceptions. If a waiter
// gave up, its watch stays on the node of the holder: the library cannot remove
// watches. And nodes that could not be deleted, as no server answered, are deleted
// later, by a goroutine that ends with the last of them, with the session or with the
// connection.
func New(conn *zk.Conn, o *Options) (*Locker, error) {
	opts, err := o.checked()
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
	target   *target // nil if the connection is the user's
	caps     driver.Capabilities
	idleTime time.Duration
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
	d := &store{opts: o, idleTime: idleTime, classes: make(map[time.Duration]*class)}
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

// newStoreOn returns the store on a connection of the user.
func newStoreOn(conn *zk.Conn, o Options, timeout time.Duration) *store {
	d := newStore(o)
	s := newSession(d, conn, func() time.Duration { return timeout })
	d.main = &class{store: d, keep: true, session: s, ready: true}
	d.declare(timeout, timeout) // a TTL may be as short as it likes
	go func() {
		defer d.end()
		select {
		case <-s.closed:
		case <-d.life.Done():
		}
	}()
	return d
}

// newLocker returns a Locker over d. d is complete.
func newLocker(d *store) (*Locker, error) {
	if d.caps.MaxTTL <= 0 {
		_ = d.Close()
		return nil, opened(fmt.Errorf("%w: a session of %v allows no TTL with ticks of %v",
			distlock.ErrInvalid, d.main.session.timeout(), d.opts.TickTime))
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

// defaultTTL returns the TTL of calls without one of their own. If the Locker was given
// none either, a quarter of the lease at least stays in reserve. So a waiter need not
// confirm its session when it wakes up: it did when it last looked.
func (d *store) defaultTTL() time.Duration {
	if d.opts.TTL != 0 {
		return d.opts.TTL
	}
	return min(distlock.DefaultTTL, d.main.session.lease()*3/4)
}

// declare fixes the capabilities. lag is how much longer than a lock's TTL its session
// may be.
func (d *store) declare(longest, lag time.Duration) {
	tick := tickOf(d.opts.TickTime, longest)
	d.caps = driver.Capabilities{
		Backend:    "zookeeper",
		Fair:       true,
		Push:       true,
		Durability: driver.Quorum,
		MaxTTL:     longestTTL(longest, tick),
		// The leader learns of the last request half a tick late, and then rounds up
		// by a tick.
		ExpiryLag: lag + 2*tick,
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
			if _ = h.Extend(context.Background(), left.ttl); !left.session.isClosed() {
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

// closeAll ends all sessions, with the patience of session.close.
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

// sessionTimeout returns the time-out that the servers have granted to a connection.
// The library keeps it in an unexported field, and no request asks for it. A wrong
// guess would be the end of mutual exclusion. So reflection reads the field, and if
// that cannot be, the user has to give the time-out.
//
// The library writes the field before it sets the state, and here the state is read
// first. It writes the field again only when it reconnects, mostly with the same value.
func sessionTimeout(conn *zk.Conn, given time.Duration) (time.Duration, error) {
	var granted time.Duration
	if conn.State() == zk.StateHasSession {
		if f := reflect.ValueOf(conn).Elem().FieldByName("sessionTimeoutMs"); f.IsValid() && f.CanInt() {
			granted = time.Duration(f.Int()) * time.Millisecond
		}
	}
	switch {
	case granted == 0 && given == 0:
		return 0, fmt.Errorf("%w: the session time-out is not known, since the connection has no session yet: "+
			"wait for zk.StateHasSession, or set SessionTimeout", distlock.ErrInvalid)
	case granted != 0 && given > granted:
		return 0, fmt.Errorf("%w: the session time-out is %v, but the servers have granted %v",
			distlock.ErrInvalid, given, granted)
	case given != 0:
		return given, nil
	}
	return granted, nil
}

// closedOf returns a channel that conn.Close closes. Close ends the session, and with
// it every lock, so we have to know before the servers do:
//
//	user                   library                         servers
//	  |-- Close ------------->|  closes this channel          |
//	  |                       |-- end of the session -------->|  others may get the names
//	  |                       |<- done -----------------------|
//	  |                       |  watches end: too late        |
//
// The library tells nothing else so early. Its calls fail as if the connection had
// broken, and the state stays what it was. A watch ends when the servers have answered.
// If they do not answer, it ends much later. Reflection alone does not receive from an
// unexported field, hence unsafe. If the field is not as expected, closedOf returns
// nil, and only zk.ErrClosing tells.
func closedOf(conn *zk.Conn) <-chan struct{} {
	f := reflect.ValueOf(conn).Elem().FieldByName("shouldQuit")
	if !f.IsValid() || f.Type() != reflect.TypeFor[chan struct{}]() {
		return nil
	}
	return *(*chan struct{})(unsafe.Pointer(f.UnsafeAddr()))
}
