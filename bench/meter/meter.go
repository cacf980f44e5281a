// Package meter counts the requests that clients send to a server, by a proxy that
// understands just enough of the server's protocol. What servers count themselves
// cannot be compared: Redis counts the commands inside of a script, ZooKeeper the
// pings, and etcd does not say.
package meter

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/distlock-go/distlock/internal/servers"
)

// Proxy forwards connections to one server and counts the requests on them. It is
// safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string
	scan     scanner
	requests atomic.Int64
	running  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // both sides; nil once the proxy is closed
}

// scanner reads what a client sends, and calls count for each request in it, until
// the connection ends.
type scanner func(r *bufio.Reader, count func()) error

var scanners = map[servers.Kind]scanner{
	servers.Redis:     scanRedis,
	servers.MySQL:     scanMySQL,
	servers.ZooKeeper: scanZooKeeper,
	servers.Etcd:      scanEtcd,
}

// New starts a proxy on a loopback port in front of a server of the kind at target.
func New(kind servers.Kind, target string) (*Proxy, error) {
	scan, ok := scanners[kind]
	if !ok {
		return nil, fmt.Errorf("meter: no protocol is known for %q", kind)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("meter: %w", err)
	}
	p := &Proxy{listener: l, target: target, scan: scan, conns: make(map[net.Conn]bool)}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the host:port that clients must connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Requests returns how many requests have been seen so far.
func (p *Proxy) Requests() int64 { return p.requests.Load() }

// Close cuts all connections and returns when nothing of the proxy is running.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.running.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // only Close ends it
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	if !p.keep(client, server) {
		return
	}
	defer p.drop(client, server)
	p.running.Go(func() {
		_, _ = io.Copy(client, server)
		p.drop(client, server)
	})
	// What the scanner reads has been sent on already.
	r := bufio.NewReaderSize(io.TeeReader(client, server), 64<<10)
	err = p.scan(r, func() { p.requests.Add(1) })
	if err != nil && !errors.Is(err, io.EOF) {
		// Not of the protocol, or cut in the middle: the traffic matters, too.
		_, _ = io.Copy(io.Discard, r)
	}
}

// keep remembers a pair of connections, unless the proxy is closed.
func (p *Proxy) keep(a, b net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		_, _ = a.Close(), b.Close()
		return false
	}
	p.conns[a], p.conns[b] = true, true
	return true
}

func (p *Proxy) drop(a, b net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, a)
	delete(p.conns, b)
	_, _ = a.Close(), b.Close()
}
