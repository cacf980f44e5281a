package zklock

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock/driver"
)

// TestReconnectsInOrder reconnects with watches and requests under way: with the race
// detector, it shows whether the library's field for the last zxid is left alone.
func TestReconnectsInOrder(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	d := openDriver(t, server(t).URLVia(w.addr())+freshPrefix()+"?tick_time=200ms&ttl=10s")
	conn := d.main.session.conn
	var watching, asking sync.WaitGroup
	for i := range 16 { // more than one request to set them anew: the library reads the field for each
		watching.Go(func() {
			for j := range 250 {
				if _, _, _, err := conn.ExistsW(fmt.Sprintf("%s/%0100d", d.opts.Prefix, 1000*i+j)); err != nil {
					t.Error(err)
				}
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

// TestWatchesAfterReconnection: what has changed meanwhile is told when the connection
// is back, and nothing else is.
func TestWatchesAfterReconnection(t *testing.T) {
	t.Parallel()
	w, admin, prefix := newWire(t), connect(t), freshPrefix()
	d := openDriver(t, server(t).URLVia(w.addr())+prefix+"?tick_time=200ms&ttl=10s")
	watched := make(map[string]<-chan zk.Event)
	for _, name := range []string{"", "/kept", "/deleted"} {
		if _, err := admin.Create(prefix+name, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"/kept", "/deleted"} {
		_, _, events, err := d.main.session.conn.GetW(prefix + name)
		if err != nil {
			t.Fatal(err)
		}
		watched[name] = events
	}
	w.away.Store(true)
	w.cut()
	if err := admin.Delete(prefix+"/deleted", -1); err != nil {
		t.Fatal(err)
	}
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

// TestZxids: replies come without their zxid, and requests get it, however they are
// cut up on the way.
func TestZxids(t *testing.T) {
	t.Parallel()
	frame := func(numbers ...any) []byte {
		var b bytes.Buffer
		for _, n := range numbers {
			_ = binary.Write(&b, binary.BigEndian, n)
		}
		return append(binary.BigEndian.AppendUint32(nil, uint32(b.Len())), b.Bytes()...)
	}
	granted := frame(int32(0), int32(6000), int64(0x77), int32(16), make([]byte, 16))
	reply := func(xid int32, zxid int64, body string) []byte { return frame(xid, zxid, int32(0), []byte(body)) }
	for how, cut := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader,
	} {
		d := newPatientDialer()
		for round, want := range []int64{0, 0x1005} {
			sent := &script{Reader: cut(bytes.NewReader(bytes.Join([][]byte{granted,
				reply(1, 0x1003, ""), reply(-1, 0x2000, "event"), reply(-2, 0x2000, ""), reply(2, 0x1005, "long body of a reply"), reply(3, 0, "")}, nil)))}
			conn := newStream(sent, d, "", 0)
			ask := frame(int32(0), int64(0), int32(6000), int64(0), int32(16), make([]byte, 16))
			watches, other := frame(int32(4), int32(opSetWatches), int64(0), int32(0)), frame(int32(5), opExists, int64(0), int32(0))
			for _, request := range [][]byte{ask, watches, other} {
				before := bytes.Clone(request)
				if _, err := conn.Write(request); err != nil || !bytes.Equal(before, request) {
					t.Error("Write has changed what it was given", err)
				}
			}
			wrote := bytes.Join([][]byte{frame(int32(0), want, int32(6000), int64(0), int32(16), make([]byte, 16)),
				frame(int32(4), int32(opSetWatches), want, int32(0)), other}, nil)
			if !bytes.Equal(sent.Bytes(), wrote) {
				t.Errorf("%s, round %d: wrote %x, want %x", how, round, sent.Bytes(), wrote)
			}
			got, err := io.ReadAll(conn)
			if err != nil {
				t.Fatal(err)
			}
			read := bytes.Join([][]byte{granted,
				reply(1, 0, ""), reply(-1, 0x2000, "event"), reply(-2, 0x2000, ""), reply(2, 0, "long body of a reply"), reply(3, 0, "")}, nil)
			if !bytes.Equal(got, read) {
				t.Errorf("%s, round %d: read %x, want %x", how, round, got, read)
			}
		}
	}
}

// script is a connection that says what it was given, and notes what it is told.
type script struct {
	net.Conn
	io.Reader
	bytes.Buffer
}

func (s *script) Read(p []byte) (int, error)  { return s.Reader.Read(p) }
func (s *script) Write(p []byte) (int, error) { return s.Buffer.Write(p) }

func (*script) SetReadDeadline(time.Time) error { return nil }

// TestSilenceEndsWriting: a request that the server does not take is given up when its
// silence is over.
func TestSilenceEndsWriting(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe() // has no buffer: nothing is written before it is read
	defer far.Close()
	s := newStream(near, newPatientDialer(), "", 0)
	s.greeted, s.silence = true, 100*time.Millisecond
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = s.Write(make([]byte, 64))
	}()
	eventually(t, func() string {
		if _, err := s.Read(make([]byte, 4)); err == nil {
			return "Read has not failed"
		}
		return ""
	})
	<-wrote
}

// breaking is a connection that breaks while a request is being written.
type breaking struct {
	net.Conn
	next *atomic.Bool // the next one
}

func (b breaking) Write(p []byte) (int, error) {
	if b.next.CompareAndSwap(true, false) {
		_ = b.Conn.Close()
	}
	return b.Conn.Write(p)
}

// TestBrokenWhileWriting: the library has other errors for a connection that breaks
// while a request is being written. That costs nothing either.
func TestBrokenWhileWriting(t *testing.T) {
	t.Parallel()
	var next atomic.Bool
	conn, _, err := zk.Connect([]string{server(t).Addr()}, 30*time.Second, zk.WithLogger(debugLog{}),
		inOrderOver(func(conn net.Conn) net.Conn { return breaking{conn, &next} }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if _, _, err := conn.Exists("/"); err != nil {
		t.Fatal(err)
	}
	l, err := New(conn, &Options{Prefix: freshPrefix(), TickTime: tick})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	unlock(t, lock(t, l, "x"))
	next.Store(true)
	held := lock(t, l, "x")
	next.Store(true)
	if err := held.Extend(t.Context(), 10*time.Second); err != nil {
		t.Error(err)
	}
	next.Store(true)
	unlock(t, held)
}

// TestBrokenWhileLoggingIn: the library sends the credentials again with each connection. If
// that cannot be written, there is another connection.
func TestBrokenWhileLoggingIn(t *testing.T) {
	t.Parallel()
	var next atomic.Bool
	var current atomic.Pointer[net.Conn]
	conn, _, err := zk.Connect([]string{server(t).Addr()}, 30*time.Second, zk.WithLogger(debugLog{}),
		inOrderOver(func(conn net.Conn) net.Conn {
			current.Store(&conn)
			return &breakingLogin{Conn: conn, next: &next}
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if err := conn.AddAuth("digest", []byte("user:password")); err != nil {
		t.Fatal(err)
	}
	next.Store(true)
	_ = (*current.Load()).Close()
	eventually(t, func() string {
		if _, _, err := conn.Exists("/"); err != nil || next.Load() {
			return fmt.Sprint("the connection is not back: ", err)
		}
		return ""
	})
}

// breakingLogin is a connection that breaks while the credentials are being written.
type breakingLogin struct {
	net.Conn
	next *atomic.Bool // the next ones
}

func (b *breakingLogin) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("user:password")) && b.next.CompareAndSwap(true, false) {
		_ = b.Conn.Close()
	}
	return b.Conn.Write(p)
}
