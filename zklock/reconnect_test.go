package zklock

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/zklock/internal/wire"
)

// TestReconnectsInOrder reconnects with watches and requests under way: with the race
// detector, it shows whether the library's field for the last zxid is left alone.
func TestReconnectsInOrder(t *testing.T) {
	t.Parallel()
	w := newProxy(t)
	d := openDriver(t, server(t).URLVia(w.addr)+freshPrefix()+"?tick_time=200ms&ttl=10s")
	conn := d.main.session.conn
	var watching, asking sync.WaitGroup
	for i := range 16 { // more than one request to set them anew: the library reads the field for each
		watching.Go(func() {
			for j := range 250 {
				testkit.Should(t, existsW(conn, fmt.Sprintf("%s/%0100d", d.opts.Prefix, 1000*i+j)))
			}
		})
	}
	watching.Wait()
	quit := make(chan struct{})
	for range 8 {
		asking.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
					_, _, _ = conn.Exists("/") // fails whenever the connection is cut
				}
			}
		})
	}
	for range 20 {
		w.cut()
		if _, _, err := conn.Exists("/"); err != nil && fateOf(err) != driver.Unknown && fateOf(err) != driver.NotSent {
			t.Error(err)
		}
		time.Sleep(50 * time.Millisecond) // not to wait for something: requests go on
	}
	close(quit)
	asking.Wait()
}

// existsW asks again where the answer was lost: on a busy machine a connection may be given up
// before a test cuts one.
func existsW(conn *wire.Conn, path string) error {
	for {
		_, _, _, err := conn.ExistsW(path)
		if err == nil || fateOf(err) != driver.Unknown && fateOf(err) != driver.NotSent {
			return err
		}
	}
}

// TestWatchesAfterReconnection: what has changed meanwhile is told when the connection
// is back, and nothing else is.
func TestWatchesAfterReconnection(t *testing.T) {
	t.Parallel()
	w, admin, prefix := newProxy(t), connect(t), freshPrefix()
	d := openDriver(t, server(t).URLVia(w.addr)+prefix+"?tick_time=200ms&ttl=10s")
	watched := make(map[string]<-chan zk.Event)
	for _, name := range []string{"", "/kept", "/deleted"} {
		if _, err := admin.Create(prefix+name, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"/kept", "/deleted"} {
		_, _, events, err := d.main.session.conn.GetW(prefix + name)
		testkit.Must(t, err)
		watched[name] = events
	}
	w.away.Store(true)
	w.cut()
	testkit.Must(t, admin.Delete(prefix+"/deleted", -1))
	w.away.Store(false)
	if e := <-watched["/deleted"]; e.Type != zk.EventNodeDeleted {
		t.Error("a node that was deleted meanwhile:", e)
	}
	if _, _, err := d.main.session.conn.Exists("/"); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-watched["/kept"]:
		t.Error("a node that nothing happened to:", e)
	default:
	}
}

// breaking is a connection that breaks while a request is being written.
type breaking struct {
	net.Conn
	next *atomic.Bool // the next one
	text string       // which has this in it
}

func (b breaking) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(b.text)) && b.next.CompareAndSwap(true, false) {
		_ = b.Conn.Close()
	}
	return b.Conn.Write(p)
}

// TestBrokenWhileWriting: the library has other errors for a connection that breaks
// while a request is being written. That costs nothing either.
func TestBrokenWhileWriting(t *testing.T) {
	t.Parallel()
	var next atomic.Bool
	conn := connectOver(t, server(t).Addr(), func(conn net.Conn) net.Conn { return breaking{conn, &next, ""} })
	l, err := New(conn, &Options{Prefix: freshPrefix(), TickTime: tick})
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	unlock(t, lock(t, l, "x"))
	next.Store(true)
	held := lock(t, l, "x")
	next.Store(true)
	testkit.Should(t, held.Extend(t.Context(), 10*time.Second))
	next.Store(true)
	unlock(t, held)
}

// TestBrokenWhileLoggingIn: the library sends the credentials again with each connection. If
// that cannot be written, there is another connection.
func TestBrokenWhileLoggingIn(t *testing.T) {
	t.Parallel()
	var next atomic.Bool
	var current atomic.Pointer[net.Conn]
	conn := connectOver(t, server(t).Addr(), func(conn net.Conn) net.Conn {
		current.Store(&conn)
		return breaking{conn, &next, "user:password"}
	})
	testkit.Must(t, conn.AddAuth("digest", []byte("user:password")))
	next.Store(true)
	_ = (*current.Load()).Close()
	eventually(t, func() string {
		if _, _, err := conn.Exists("/"); err != nil || next.Load() {
			return fmt.Sprint("the connection is not back: ", err)
		}
		return ""
	})
}
