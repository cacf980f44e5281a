// Package wire connects to ZooKeeper by the library go-zookeeper, and works around the
// flaws of that. It knows nothing of locks.
//
//	conn.go    a connection: its timeout, its end, why there is none
//	dialer.go  its TCP connections, one after the other
//	stream.go  one of them
package wire

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"
)

// Target is where the servers are, and how to speak to them.
type Target struct {
	Hosts       []string                                                           // with their ports
	Lookup      func(ctx context.Context, host string) (addrs []string, err error) // of a resolver
	Dial        func(ctx context.Context, network, addr string) (net.Conn, error)  // of a TCP connection
	TLS         *tls.Config                                                        // nil without TLS
	DialTimeout time.Duration                                                      // for each server, until it has granted the session
	Logger      *slog.Logger                                                       // of what the library says, at the level Debug

	// Lease returns for how long anything may rely on a session with this timeout after
	// it was last confirmed. A silent server is left long before that.
	Lease func(timeout time.Duration) time.Duration
}

// Conn is a connection, and the session that the servers keep for it. If a session
// expires, the next one follows. It is safe for concurrent use.
type Conn struct {
	*zk.Conn

	// Closed is closed as soon as the owner closes the connection, before the servers
	// know. It is nil if that cannot be known; then only zk.ErrClosing tells.
	Closed <-chan struct{}

	dialer *dialer         // nil if the connection is the user's
	events <-chan zk.Event // closed when nothing of it runs any more
	given  time.Duration   // the longest timeout, if the connection is the user's

	creating sync.RWMutex // read-locked by each CreateContainer, locked for good by Close
}

// Dial starts a connection that asks for a session with the timeout ask, and does not
// wait for it. It goes on trying until Close.
func Dial(t Target, ask time.Duration) (*Conn, error) {
	d := newDialer(t)
	conn, events, err := zk.Connect(t.Hosts, ask,
		zk.WithDialer(d.connect), zk.WithHostProvider(&hosts{}), zk.WithLogger(slog.NewLogLogger(t.Logger.Handler(), slog.LevelDebug)))
	if err != nil {
		d.end()
		return nil, err
	}
	return &Conn{Conn: conn, Closed: closedOf(conn), dialer: d, events: events}, nil
}

// OfUser returns a connection that the user has made, and closes. Its sessions have
// the given timeout, or less if the servers grant less when it reconnects.
func OfUser(conn *zk.Conn, timeout time.Duration) *Conn {
	return &Conn{Conn: conn, Closed: closedOf(conn), given: timeout}
}

// Timeout returns the timeout that the servers have granted last, 0 before the first. When
// a request is answered, it is known what the connection was granted that the answer came by.
func (c *Conn) Timeout() time.Duration {
	if c.dialer != nil {
		return c.dialer.timeout()
	}
	if granted := grantedTo(c.Conn); granted != 0 {
		return min(c.given, granted)
	}
	return c.given
}

// IsClosed reports whether the owner has closed the connection.
func (c *Conn) IsClosed() bool {
	select {
	case <-c.Closed:
		return true
	default:
		return false
	}
}

// Reason returns why the last attempt to connect has failed. It is nil if that has not
// failed, or is not known.
func (c *Conn) Reason() error {
	if c.dialer == nil {
		return nil
	}
	return c.dialer.reason()
}

// CreateContainer is that of the library, but not while the connection is being closed. The
// library then returns what is under way, and may decode the answer meanwhile. All its
// other calls leave the result alone then, but this one reads it: a data race. On a
// connection of the user, who may close it at any time, it cannot be kept out.
func (c *Conn) CreateContainer(path string, acl []zk.ACL) error {
	if !c.creating.TryRLock() {
		return zk.ErrClosing
	}
	defer c.creating.RUnlock()
	_, err := c.Conn.CreateContainer(path, nil, zk.FlagContainer, acl)
	return err
}

// Close ends a connection of Dial and its session, and returns when nothing of it runs any
// more. It waits for the servers to confirm that for as long as patience says; the library
// would wait for a second, and two more if too many requests are queued up. A connection of
// the user stays as it is.
func (c *Conn) Close(patience time.Duration) {
	if c.dialer == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		c.endContainers(time.Now().Add(patience / 2))
		c.Conn.Close()
		close(closed)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
	c.dialer.end()
	for range c.events {
	}
	c.dialer.finishing.Wait()
}

// endContainers returns when the library cannot be writing the result of a CreateContainer
// any more: none is under way, and none begins, or there is no TCP connection. It waits for
// their answers until an instant: without a connection, the session cannot be ended on the
// servers either.
func (c *Conn) endContainers(until time.Time) {
	for !c.creating.TryLock() {
		if !time.Now().Before(until) {
			c.dialer.end()
			if state := c.State(); state == zk.StateDisconnected || state == zk.StateConnecting {
				return
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// TimeoutOf returns the timeout that the servers have granted to a connection with a
// session, and 0 if that cannot be known. The library writes it before it sets the state,
// and here the state is read first.
func TimeoutOf(conn *zk.Conn) time.Duration {
	if conn.State() != zk.StateHasSession {
		return 0
	}
	return grantedTo(conn)
}

// grantedTo returns the timeout that the servers have granted last to a connection, and 0
// if that cannot be known. The library keeps it in an unexported field, and no request asks
// for it. Between two connections, the field keeps its value. Before the first session, it
// is what is asked for.
func grantedTo(conn *zk.Conn) time.Duration {
	f := reflect.ValueOf(conn).Elem().FieldByName("sessionTimeoutMs")
	if conn.SessionID() == 0 || !f.IsValid() || f.Kind() != reflect.Int32 {
		return 0
	}
	return time.Duration(racing((*int32)(unsafe.Pointer(f.UnsafeAddr())))) * time.Millisecond
}

// racing reads a number that the library may be writing just now, as it does whenever it
// reconnects. By the memory model of Go, the value is the one before that or the one after,
// and both do: see Timeout. The race detector of the user's tests need not know.
//
//go:norace
func racing(number *int32) int32 { return *number }

// closedOf returns a channel that conn.Close closes. Close ends the session, and with
// it every node, so we have to know before the servers do: then others may get the names.
//
// The library tells nothing else so early. Its calls fail as if the connection had
// broken, and the state stays what it was. A watch ends when the servers have answered.
// If they do not answer, it ends much later. Reflection alone does not receive from an
// unexported field, hence unsafe. If the field is not as expected, closedOf returns nil.
func closedOf(conn *zk.Conn) <-chan struct{} {
	f := reflect.ValueOf(conn).Elem().FieldByName("shouldQuit")
	if !f.IsValid() || f.Type() != reflect.TypeFor[chan struct{}]() {
		return nil
	}
	return *(*chan struct{})(unsafe.Pointer(f.UnsafeAddr()))
}
