package zklock

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock/internal/testkit"
)

// Operations by their number in the protocol.
const (
	opCreate    int32 = 1
	opDelete    int32 = 2
	opExists    int32 = 3
	opGetData   int32 = 4
	opSync      int32 = 9
	opPing      int32 = 11
	opChildren  int32 = 12
	opMulti     int32 = 14
	opContainer int32 = 19
	opAuth      int32 = 100
	opClose     int32 = -11
)

// fault is what becomes of one request.
type fault int

const (
	pass        fault = iota
	loseRequest       // the connection breaks before the server gets it
	loseReply         // the connection breaks after the server has done it
	refuse            // the server does not know such a request
)

// proxy is a path to the server that knows where requests begin and end.
type proxy struct {
	t    testing.TB
	addr string
	gate sync.RWMutex // locked while nothing comes through
	away atomic.Bool  // the server cannot be reached

	grants atomic.Uint32 // the session timeout in milliseconds that clients are told; 0 means the server's own

	connected atomic.Int64 // open connections of clients

	mu       sync.Mutex
	judge    func(op int32) fault
	counts   map[int32]int
	conns    []net.Conn
	greeting []byte // the latest answer to a connect request
}

func newProxy(t testing.TB) *proxy {
	t.Helper()
	w := &proxy{t: t, counts: make(map[int32]int)}
	target := server(t).Addr()
	w.addr = testkit.Serve(t, nil, func(client net.Conn) { w.serve(client, target) })
	t.Cleanup(w.cut)
	return w
}

// connections returns how many were made, or tried, since the last cut.
func (w *proxy) connections() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns)
}

// connect returns a connection through the proxy.
func (w *proxy) connect() *zk.Conn { return connectTo(w.t, w.addr) }

// on sets the judge of all requests to come.
func (w *proxy) on(judge func(op int32) fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge = judge
}

// each has all requests to come of some operations meet a fault.
func (w *proxy) each(f fault, ops ...int32) {
	w.on(func(op int32) fault {
		if slices.Contains(ops, op) {
			return f
		}
		return pass
	})
}

// before has do called for each request to come of an operation, which then passes.
func (w *proxy) before(op int32, do func()) {
	w.on(func(got int32) fault {
		if got == op {
			do()
		}
		return pass
	})
}

// count returns how many requests there were, by operation, since the last call;
// pings do not count.
func (w *proxy) count() map[int32]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := w.counts
	w.counts = make(map[int32]int)
	delete(counts, opPing)
	return counts
}

// cut breaks all connections.
func (w *proxy) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// expire ends the client's session on the server, the way its expiry does.
func (w *proxy) expire() {
	w.t.Helper()
	// The client reconnects as soon as another has come for its session, and would
	// take it back.
	w.gate.Lock()
	defer w.gate.Unlock()
	w.mu.Lock()
	greeting := w.greeting
	w.mu.Unlock()
	conn, err := net.Dial("tcp", server(w.t).Addr())
	testkit.Must(w.t, err)
	defer conn.Close()
	request := make([]byte, 4+8+4)                               // protocol version, last zxid seen, timeout
	request = append(request, greeting[8:8+8+4+16]...)           // session id, and the password with its length
	closing := binary.BigEndian.AppendUint32(nil, 1)             // xid
	closing = binary.BigEndian.AppendUint32(closing, 0xfffffff5) // closeSession
	for _, frame := range [][]byte{request, closing} {
		if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
			w.t.Fatal(err)
		}
		if _, err := readFrame(conn); err != nil {
			w.t.Fatal(err)
		}
	}
}

// comeThrough waits until the gate is open.
func (w *proxy) comeThrough() {
	w.gate.RLock()
	defer w.gate.RUnlock()
}

func readFrame(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(head))
	copy(frame, head)
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

func (w *proxy) serve(client net.Conn, target string) {
	defer client.Close()
	w.connected.Add(1)
	defer w.connected.Add(-1)
	if w.away.Load() {
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	w.mu.Lock()
	w.conns = append(w.conns, client, server)
	w.mu.Unlock()
	p := &pair{proxy: w, client: client, server: server, lost: make(map[int32]bool)}
	var replies sync.WaitGroup
	replies.Go(p.replies)
	p.requests()
	client.Close()
	server.Close()
	replies.Wait()
}

// pair is one connection through a proxy.
type pair struct {
	*proxy
	client, server net.Conn

	lostMu sync.Mutex // also held to write to client
	lost   map[int32]bool
}

func (p *pair) requests() {
	for first := true; ; first = false {
		frame, err := readFrame(p.client)
		if err != nil {
			return
		}
		p.comeThrough()
		if first {
			_, err = p.server.Write(frame)
		} else {
			err = p.request(frame)
		}
		if err != nil {
			return
		}
	}
}

var errCut = errors.New("cut")

func (p *pair) request(frame []byte) error {
	xid := int32(binary.BigEndian.Uint32(frame[4:]))
	op := int32(binary.BigEndian.Uint32(frame[8:]))
	p.mu.Lock()
	p.counts[op]++
	verdict := pass
	if p.judge != nil && op != opPing {
		verdict = p.judge(op)
	}
	p.mu.Unlock()
	switch verdict {
	case loseRequest:
		return errCut
	case refuse:
		reply := binary.BigEndian.AppendUint32(nil, 16)
		reply = binary.BigEndian.AppendUint32(reply, uint32(xid))
		reply = append(reply, make([]byte, 8)...)                // zxid
		reply = binary.BigEndian.AppendUint32(reply, 0xfffffffa) // -6, unimplemented
		p.lostMu.Lock()
		defer p.lostMu.Unlock()
		_, err := p.client.Write(reply)
		return err
	case loseReply:
		p.lostMu.Lock()
		p.lost[xid] = true
		p.lostMu.Unlock()
	}
	_, err := p.server.Write(frame)
	return err
}

func (p *pair) replies() {
	defer p.client.Close()
	for first := true; ; first = false {
		frame, err := readFrame(p.server)
		if err != nil {
			return
		}
		p.comeThrough()
		if first {
			p.mu.Lock()
			p.greeting = frame[4:]
			p.mu.Unlock()
			if granted := p.grants.Load(); granted != 0 {
				frame = slices.Clone(frame)
				binary.BigEndian.PutUint32(frame[8:], granted) // after the length and the protocol version
			}
		}
		p.lostMu.Lock()
		if !first && p.lost[int32(binary.BigEndian.Uint32(frame[4:]))] {
			p.lostMu.Unlock()
			return
		}
		_, err = p.client.Write(frame)
		p.lostMu.Unlock()
		if err != nil {
			return
		}
	}
}

// once returns a judge that lets the k-th request of an operation fail, 1 being
// the next; of any operation, if op is 0.
func once(op int32, k int, f fault) func(int32) fault {
	return func(got int32) fault {
		if op != 0 && got != op {
			return pass
		}
		if k--; k == 0 {
			return f
		}
		return pass
	}
}

// monitor asks the server at addr for one of the values it counts.
func monitor(t testing.TB, addr, key string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	testkit.Must(t, err)
	defer conn.Close()
	if _, err := conn.Write([]byte("mntr")); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	testkit.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+"\t"); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("the server does not count %s", key)
	return ""
}
