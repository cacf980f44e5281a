package netfault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// TCPProxy is a Link over TCP: it listens on a loopback port and forwards what
// comes to one server, whatever the protocol. Give each client a proxy of its own,
// and Close it after the client. It is safe for concurrent use.
//
// Its requests and replies are uninterrupted runs of bytes: see Link. Where a client
// sends one request at a time, as over Redis and MySQL connections, a run is a request;
// where requests overlap or heartbeats flow, as with ZooKeeper, runs end at other places.
// A check that sweeps k does not mind. Over HTTP/2 without TLS, and so over gRPC, a request
// or reply is a message: there runs are mostly of the protocol itself, and requests
// of one connection overlap. Parsing the protocol of each store would be a source of error
// for every driver to come.
type TCPProxy struct {
	listener net.Listener
	target   string
	ctx      context.Context // ends at Close
	cancel   context.CancelFunc
	running  sync.WaitGroup // accept loop, and four goroutines a connection

	mu    sync.Mutex
	rng   *rand.Rand
	conns map[*proxyConn]bool
	set   settings
	armed [faults]int   // how many runs of bytes are still to pass, the last one is hit; 0 is disarmed
	held  chan struct{} // closed by Release; nil if nothing was held yet

	requests int
	bytes    int64
	fired    int
}

// settings are the faults that last.
type settings struct {
	drop          [2]bool // by direction
	delay, jitter time.Duration
	slice         bool
	seen          [kinds]bool // those that have had an effect, and are counted
}

// The directions.
const (
	toServer = iota
	toClient
)

// The armed faults.
const (
	cutReply = iota
	cutRequest
	dropReply
	dropRequest
	holdRequest
	faults
)

// The kinds of settings.
const (
	dropping = iota
	delaying
	slicing
	kinds
)

var _ Link = (*TCPProxy)(nil)

// NewTCPProxy starts a proxy in front of target, a TCP address. The seed decides
// about the random part of delays.
func NewTCPProxy(target string, seed uint64) (*TCPProxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("netfault: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &TCPProxy{
		listener: l, target: target, ctx: ctx, cancel: cancel,
		rng: rand.New(rand.NewPCG(seed, 0)), conns: make(map[*proxyConn]bool),
	}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the address that clients must connect to.
func (p *TCPProxy) Addr() string { return p.listener.Addr().String() }

// Close resets all connections, stops listening and waits until nothing of the
// proxy is running. It is idempotent.
func (p *TCPProxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.mu.Lock()
	p.killAll(func(*proxyConn) bool { return true })
	p.mu.Unlock()
	p.running.Wait()
	if isClosed(err) {
		return nil
	}
	return err
}

func (p *TCPProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // only Close ends it
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// CutReply implements Link.
func (p *TCPProxy) CutReply(k int) { p.arm(cutReply, k) }

// CutRequest implements Link.
func (p *TCPProxy) CutRequest(k int) { p.arm(cutRequest, k) }

// DropReply implements Link.
func (p *TCPProxy) DropReply(k int) { p.arm(dropReply, k) }

// DropRequest implements Link.
func (p *TCPProxy) DropRequest(k int) { p.arm(dropRequest, k) }

// HoldRequest implements Link.
func (p *TCPProxy) HoldRequest(k int) { p.arm(holdRequest, k) }

// arm begins a request on each connection: what the client says next comes after the call. It
// may have said something after the last reply.
func (p *TCPProxy) arm(fault, k int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed[fault] = k
	for c := range p.conns {
		if fault != cutReply && fault != dropReply && c.direction == toServer {
			c.spoken = false
		}
	}
}

// Release implements Link.
func (p *TCPProxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release()
}

func (p *TCPProxy) release() {
	p.armed[holdRequest] = 0
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// Drop implements Link.
func (p *TCPProxy) Drop(up, down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(up, down)
}

func (p *TCPProxy) drop(up, down bool) {
	p.set.drop = [2]bool{up, down}
	p.set.seen[dropping] = false
	p.killAll(func(c *proxyConn) bool {
		return c.lost[toServer] && !up || c.lost[toClient] && !down
	})
}

// Delay implements Link.
func (p *TCPProxy) Delay(d, jitter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set.delay, p.set.jitter = d, jitter
	p.set.seen[delaying] = false
}

// Slice implements Link.
func (p *TCPProxy) Slice(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set.slice = on
	p.set.seen[slicing] = false
}

// CutAll implements Link.
func (p *TCPProxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killAll(func(*proxyConn) bool { return true }) > 0 {
		p.fired++
	}
}

// Heal implements Link.
func (p *TCPProxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = [faults]int{}
	p.release()
	p.drop(false, false)
	p.set = settings{}
}

// Requests implements Link.
func (p *TCPProxy) Requests() int { return locked(p, &p.requests) }

// Bytes implements Link.
func (p *TCPProxy) Bytes() int64 { return locked(p, &p.bytes) }

// Fired implements Link.
func (p *TCPProxy) Fired() int { return locked(p, &p.fired) }

// Connections implements Link.
func (p *TCPProxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for c := range p.conns {
		if !c.clientGone {
			n++
		}
	}
	return n
}

func locked[T any](p *TCPProxy, v *T) T {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *v
}

// killAll resets the connections that match, and returns how many those were.
// p.mu must be held.
func (p *TCPProxy) killAll(match func(*proxyConn) bool) int {
	n := 0
	for c := range p.conns {
		if match(c) {
			c.kill()
			n++
		}
	}
	return n
}

// verdict is what becomes of one chunk of bytes.
type verdict struct {
	cut, drop, slice bool
	hold             <-chan struct{} // to wait for before it is passed on; nil is no wait
	due              time.Time
}

// judge counts what has arrived on c and decides about it. The rest of a message that was not discarded is not, either: a
// message that is held back must be whole.
func (p *TCPProxy) judge(c *proxyConn, direction int, k piece, passes bool) verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes += int64(len(k.bytes))
	var v verdict
	if k.begins || k.run && (!c.spoken || c.direction != direction) {
		c.spoken, c.direction = true, direction
		if direction == toServer {
			p.requests++
			v.cut = p.hit(cutRequest)
			c.mute[toServer] = c.mute[toServer] || p.hit(dropRequest)
			if !v.cut && p.hit(holdRequest) {
				if p.held == nil {
					p.held = make(chan struct{})
				}
				v.hold = p.held
			}
		} else {
			v.cut = p.hit(cutReply)
			c.mute[toClient] = c.mute[toClient] || p.hit(dropReply)
		}
	}
	if p.set.drop[direction] {
		p.took(dropping)
	}
	v.drop = !passes && p.loses(c, direction)
	if v.slice = p.set.slice; v.slice {
		p.took(slicing)
	}
	if p.set.delay > 0 || p.set.jitter > 0 {
		v.due = time.Now().Add(p.latency())
		p.took(delaying)
	}
	return v
}

// loses reports whether what comes this way is discarded, and notes it. p.mu must be held.
func (p *TCPProxy) loses(c *proxyConn, direction int) bool {
	if !p.set.drop[direction] && !c.mute[direction] {
		return false
	}
	c.lost[direction] = true
	return true
}

// latency draws the delay of one way. p.mu must be held.
func (p *TCPProxy) latency() time.Duration {
	d := p.set.delay / 2
	if j := p.set.jitter / 2; j > 0 {
		d += time.Duration(p.rng.Int64N(int64(2*j))) - j
	}
	return d
}

// hit counts a run of bytes against an armed fault and reports whether it is this one's.
func (p *TCPProxy) hit(fault int) bool {
	if p.armed[fault] == 0 {
		return false
	}
	p.armed[fault]--
	if p.armed[fault] > 0 {
		return false
	}
	p.fired++
	return true
}

// took counts a setting the first time that it has an effect.
func (p *TCPProxy) took(kind int) {
	if !p.set.seen[kind] {
		p.set.seen[kind] = true
		p.fired++
	}
}

// ended notes the end of one direction and says what becomes of it: in a black
// hole not even that gets through.
func (p *TCPProxy) ended(c *proxyConn, direction int) (v verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if direction == toServer {
		c.clientGone = true
	}
	v.drop = p.loses(c, direction)
	if p.set.delay > 0 || p.set.jitter > 0 {
		v.due = time.Now().Add(p.latency())
	}
	return v
}
