package measure

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/compare/report"
)

// Tap is a proxy in front of one server. It counts bytes both ways, and the requests of
// the store's protocol. The proxy of package conformance knows no protocol and counts
// turns of the conversation. Those are fewer than the requests, where requests overlap
// or share a segment. The server's own counters are no better: they count all its
// clients, and each store counts something else.
type Tap struct {
	listener net.Listener
	target   string
	newCount func() counter
	running  sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool // both ends; nil once closed
	bytes  atomic.Int64
	number atomic.Int64 // of requests
}

// NewTap begins to listen for clients of the server at target, a host:port.
func NewTap(target, store string) (*Tap, error) {
	newCount, known := counters[store]
	if !known {
		return nil, fmt.Errorf("counting proxy: nothing is known of the requests of the store %q", store)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("counting proxy: %w", err)
	}
	t := &Tap{listener: l, target: target, newCount: newCount, conns: make(map[net.Conn]bool)}
	t.running.Go(t.accept)
	return t, nil
}

func (t *Tap) accept() {
	for {
		client, err := t.listener.Accept()
		if err != nil {
			return // only Close ends it
		}
		t.running.Go(func() { t.serve(client) })
	}
}

func (t *Tap) serve(client net.Conn) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", t.target, 5*time.Second)
	if err != nil {
		return // as if the server had refused
	}
	defer server.Close()
	if !t.keep(client, server) {
		return
	}
	defer t.forget(client, server)
	count := t.newCount()
	var ways sync.WaitGroup
	ways.Go(func() {
		pass(server, tee{client, func(p []byte) {
			t.bytes.Add(int64(len(p)))
			t.number.Add(int64(count(p)))
		}})
		server.Close() // a client that has gone waits for nothing
	})
	ways.Go(func() {
		pass(client, tee{server, func(p []byte) { t.bytes.Add(int64(len(p))) }})
		client.Close()
	})
	ways.Wait()
}

// pass copies with a small buffer: the memory of this process is measured.
func pass(to io.Writer, from io.Reader) {
	_, _ = io.CopyBuffer(struct{ io.Writer }{to}, from, make([]byte, 4<<10))
}

// tee shows what is read.
type tee struct {
	from io.Reader
	show func([]byte)
}

func (r tee) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.show(p[:n])
	return n, err
}

func (t *Tap) keep(conns ...net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range conns {
		if t.conns != nil {
			t.conns[c] = true
		}
	}
	return t.conns != nil
}

func (t *Tap) forget(conns ...net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range conns {
		delete(t.conns, c)
	}
}

// Close ends all connections and waits until nothing runs any more. A nil tap is one
// that could not be put in front of the server.
func (t *Tap) Close() {
	if t == nil {
		return
	}
	_ = t.listener.Close()
	t.mu.Lock()
	for c := range t.conns {
		_ = c.Close()
	}
	t.conns = nil
	t.mu.Unlock()
	t.running.Wait()
}

// Addr returns the host:port that clients connect to.
func (t *Tap) Addr() string { return t.listener.Addr().String() }

func (t *Tap) counts() bool { return t != nil }

// Requests returns how many requests clients have sent so far.
func (t *Tap) Requests() int64 {
	if t == nil {
		return 0
	}
	return t.number.Load()
}

// Bytes returns how many bytes have passed so far, both ways.
func (t *Tap) Bytes() int64 { return t.bytes.Load() }

// tapped opens a Locker by way of a tap, or directly, with a nil tap, where that
// cannot be. The caller closes the Locker, and then the tap.
func (b *bench) tapped(ctx context.Context) (distlock.Locker, *Tap, error) {
	if b.target.Addr == "" {
		if b.target.Store != "" {
			b.result.Unmeasured["requests"] = b.target.NoRoute.Error()
		}
		l, err := b.target.Open(ctx)
		return l, nil, err
	}
	t, err := NewTap(b.target.Addr, b.target.Store)
	if err != nil {
		return nil, nil, err
	}
	l, err := b.target.OpenVia(ctx, t.Addr())
	if err != nil {
		t.Close()
		return nil, nil, err
	}
	return l, t, nil
}

// trafficNames is over how many lock+unlock the traffic is averaged.
const trafficNames = 100

func trafficTakes(report.Params) time.Duration { return 2 * trafficNames * 3 * time.Millisecond }

// traffic counts what a lock and unlock sends and receives, on names that the store
// has never seen and on one that it knows.
func traffic(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error) {
	l, via, err := b.tapped(ctx)
	if err != nil {
		return nil, err
	}
	defer via.Close()
	defer l.Close()
	// What a connection costs once is not the price of a lock.
	for i := range 10 {
		if err := lockUnlock(ctx, l, fmt.Sprintf("%straffic/warm-up/%d", b.run, i%5), p.TTL, 0); err != nil {
			return nil, err
		}
	}
	for _, c := range []struct {
		id   string
		name func(i int) string
	}{
		{"new_name", func(i int) string { return fmt.Sprintf("%straffic/new/%d", b.run, i) }},
		{"known_name", func(int) string { return b.run + "traffic/known" }},
	} {
		requests, bytes := via.number.Load(), via.bytes.Load()
		for i := range trafficNames {
			if err := lockUnlock(ctx, l, c.name(i), p.TTL, 0); err != nil {
				return nil, err
			}
		}
		b.result.Traffic[c.id] = report.Traffic{
			Requests: float64(via.number.Load()-requests) / trafficNames,
			Bytes:    float64(via.bytes.Load()-bytes) / trafficNames,
		}
	}
	return nil, nil
}
