// Package zklock takes locks on Apache ZooKeeper.
//
// Every claim on a name is an ephemeral sequential node, and the first of them has
// the lock: first come, first served over all processes. All locks of a Locker
// live by its session, so they are renewed together, by one request.
//
// docs/zookeeper.md says what is stored, what is guaranteed, and what to set.
package zklock

import (
	"cmp"
	"fmt"
	"path"
	"reflect"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
)

// DefaultPrefix is the path of the locks where Options name none.
const DefaultPrefix = "/distlock"

// Options configure a Locker on ZooKeeper. The zero value, and nil, mean the
// defaults. A TTL of 0 means distlock.DefaultTTL, or three quarters of the lease
// that the session allows if that is less.
type Options struct {
	distlock.Options

	// Prefix is the path under which the locks are, like "/app/locks". It is made
	// when the first lock is taken. Lockers exclude each other if they have the
	// same. Empty means DefaultPrefix.
	Prefix string

	// SessionTimeout is what Open asks the servers for. They may grant less or
	// more, and the longest TTL is a good half of what they grant. 0 means what
	// TTL needs, a little more than twice of it.
	//
	// New finds out the time-out of a connection by itself, if it is connected.
	// If it is not, SessionTimeout must be given, and must not be more than the
	// servers grant: by default, they grant 20 ticks at the most.
	SessionTimeout time.Duration

	// TickTime is the tickTime of the servers, if that is more than 3 s; leases
	// are shorter by half of it. 0 means 3 s, or half a session if that is less.
	TickTime time.Duration

	// ACL is what new nodes get. Nil means that everybody may do everything.
	ACL []zk.ACL
}

// Locker takes locks on one ZooKeeper ensemble. It is safe for concurrent use.
type Locker struct {
	*distlock.Client
}

// Lock is a lock on ZooKeeper. It is safe for concurrent use.
type Lock struct {
	*distlock.Handle
	path string
}

var (
	_ distlock.Locker = (*Locker)(nil)
	_ distlock.Lock   = (*Lock)(nil)
)

// Path returns the path of the node that is the lock. A write to ZooKeeper is
// fenced by putting it into one Multi with a zk.CheckVersionRequest of this path
// and version 0: it then fails if the lock has been lost.
func (l *Lock) Path() string { return l.path }

// New returns a Locker on a connection of the user, which it never closes. Locks
// end with the session of the connection; later ones live by the next session. It
// sends no request. It fails with distlock.ErrInvalid if an option is not allowed,
// or if the session time-out cannot be known.
//
// Closing the Locker leaves the connection as it was, except that a watch stays on
// the node of a holder that was waited for in vain, as the library cannot remove
// watches.
func New(conn *zk.Conn, o *Options) (*Locker, error) {
	opts, err := o.checked()
	if err != nil {
		return nil, opened(err)
	}
	session, err := sessionTimeout(conn, opts.SessionTimeout)
	if err != nil {
		return nil, opened(err)
	}
	return newLocker(&driver{conn: conn, granted: func() time.Duration { return session }}, opts)
}

func opened(err error) error { return fmt.Errorf("distlock: open zookeeper: %w", err) }

// newLocker completes d and returns a Locker over it.
func newLocker(d *driver, o Options) (*Locker, error) {
	d.prefix, d.acl = o.Prefix, o.ACL
	d.finish(o.TickTime)
	if d.caps.MaxTTL <= 0 || o.TTL > d.caps.MaxTTL {
		return nil, opened(fmt.Errorf("%w: the TTL is %v, but the session of %v that the servers have granted allows %v at the most",
			distlock.ErrInvalid, cmp.Or(o.TTL, distlock.DefaultTTL), d.granted(), max(d.caps.MaxTTL, 0)))
	}
	if o.TTL == 0 {
		// With a quarter in reserve, a waiter that is woken need not prove its
		// session first: it did when it last looked.
		o.TTL = min(distlock.DefaultTTL, d.lease()*3/4)
	}
	client, err := distlock.New(d, &o.Options)
	if err != nil {
		return nil, err
	}
	return &Locker{client}, nil
}

// checked returns o with the defaults that need no server, or an ErrInvalid.
func (o *Options) checked() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	out.Prefix = cmp.Or(out.Prefix, DefaultPrefix)
	if out.ACL == nil {
		out.ACL = zk.WorldACL(zk.PermAll)
	}
	switch p := out.Prefix; {
	case p[0] != '/' || path.Clean(p) != p || p == "/":
		return out, fmt.Errorf("%w: the prefix is %q, allowed is a path like %q", distlock.ErrInvalid, p, DefaultPrefix)
	case out.SessionTimeout < 0 || out.TickTime < 0:
		return out, fmt.Errorf("%w: the session time-out is %v and the tick %v, allowed is 0 or more",
			distlock.ErrInvalid, out.SessionTimeout, out.TickTime)
	}
	return out, nil
}

// sessionTimeout returns what the servers have granted to a connection. The
// library keeps it in a field that is not exported, and knows no request that
// tells it. A wrong guess would be the end of mutual exclusion, so it is read
// there by reflection, and where it cannot be, the user has to say it.
//
// The library writes the field before it sets the state that is read here first,
// and again only when it reconnects, mostly to the same value.
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
