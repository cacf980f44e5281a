package wire

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// dialer makes the TCP connections of one session of Dial, one after the other. If a
// server falls silent, the dialer leaves it in time for what lives by the session:
//
//	0            a request is sent, and no answer comes
//	silence      reading fails (stream.go), and the library goes to the next server
//	2 silences   more for each server that does not take up the session: the next one
//	lease        nothing of the session is believed in any more: given up, so the next
//	             connection asks for a new session, and another one ends the old one
type dialer struct {
	Target
	life  context.Context // ends with the session
	end   context.CancelFunc
	began time.Time

	granted atomic.Int64 // the timeout, as the last connection was told; 0 before the first
	longest atomic.Int64 // the longest one of the session
	heard   atomic.Int64 // when the servers last said something, in nanoseconds since began
	zxid    atomic.Int64 // the last one seen, over all connections since the session was given up

	finishing sync.WaitGroup // ends of sessions that were given up

	attempts map[string]int // to connect, by host:port; of the goroutine of the library that does

	mu      sync.Mutex
	current net.Conn
	failure error // why the last attempt to connect failed; nil once one has succeeded
}

func newDialer(t Target) *dialer {
	d := &dialer{Target: t, began: time.Now(), attempts: make(map[string]int)}
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

const (
	// silenceShare is the part of a lease for which a server may leave requests
	// unanswered. Renewals come at a third of a TTL. So there is time left for another
	// server, and for one more if that is silent as well.
	silenceShare = 8
	// minSilence is what a healthy server may need now and then.
	minSilence = 500 * time.Millisecond
)

// silence is how long the servers may leave a request unanswered.
func (d *dialer) silence() time.Duration { return max(d.lease()/silenceShare, minSilence) }

func (d *dialer) lease() time.Duration { return d.Lease(d.timeout()) }

func (d *dialer) timeout() time.Duration { return time.Duration(d.granted.Load()) }

// givenUp reports whether nothing has come from the servers for the length of a lease.
// By then nobody relies on the session any more, unless it was granted more before (see outlived), and the next connection asks
// for a new one.
// Requests may reach the servers while no answer comes back. Each attempt to take up the
// old session would then keep it alive, with all its nodes.
//
// The new one is asked for as if nothing had been seen, as by a new process. Servers refuse
// a client that has seen a higher zxid than theirs. For a session that lives on, that keeps
// it from servers which are behind. But servers that were rebuilt would refuse for ever.
func (d *dialer) givenUp() bool {
	return d.timeout() != 0 && time.Since(d.began)-time.Duration(d.heard.Load()) > d.lease()
}

// limit bounds an attempt to connect. While there is a session to save, no server gets more than twice the time for an answer.
func (d *dialer) limit() time.Duration {
	if d.timeout() == 0 || d.givenUp() {
		return d.DialTimeout
	}
	return min(d.DialTimeout, 2*d.silence())
}

// connect is a zk.Dialer. The library's own limit of a second is too short for TLS over a long way.
func (d *dialer) connect(network, addr string, _ time.Duration) (net.Conn, error) {
	limit := d.limit()
	ctx, cancel := context.WithTimeout(d.life, limit)
	defer cancel()
	conn, err := d.dial(ctx, network, addr)
	if err != nil {
		d.fail(addr, err)
		return nil, err
	}
	s := newStream(conn, d, addr, limit)
	d.mu.Lock()
	last := d.current
	d.current = s
	d.mu.Unlock()
	if last != nil {
		last.Close() // the library forgets it when the session has expired
	}
	return s, conn.SetReadDeadline(time.Now().Add(limit))
}

// dial connects to a host. The first attempt leaves it to Dial which of the addresses of a name is taken. Each later one begins
// with another: a server that accepts connections and says nothing would else be found again and again, and never the one
// beside it.
func (d *dialer) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	n := d.attempts[hostPort]
	d.attempts[hostPort]++
	if n > 0 {
		if addrs, err := d.Lookup(ctx, host); err == nil && len(addrs) > 1 {
			if conn, err := d.dialOne(ctx, network, net.JoinHostPort(addrs[n%len(addrs)], port), host, 4); err == nil {
				return conn, nil
			}
		}
	}
	return d.dialOne(ctx, network, hostPort, host, 1)
}

// dialOne connects to an address of a host, and takes the given fraction of the time that is left.
func (d *dialer) dialOne(ctx context.Context, network, addr, host string, fraction int) (net.Conn, error) {
	end, _ := ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, time.Until(end)/time.Duration(fraction))
	defer cancel()
	conn, err := d.Dial(ctx, network, addr)
	if err != nil || d.TLS == nil {
		return conn, err
	}
	config := d.TLS.Clone()
	config.ServerName = cmp.Or(config.ServerName, host)
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

// outlived returns for how long a lease of a session that was given up may still be believed in: it may have been granted more than
// it was last, before that. It is called once for each.
func (d *dialer) outlived() time.Duration {
	return max(0, d.Lease(time.Duration(d.longest.Swap(0)))-d.lease())
}

// finish ends a session that was given up, once the next one is there, and after a while. The servers may keep it for as long as its timeout
// yet, and a request in it that comes late would make a node that nobody knows of. takeUp asks for the session. The
// request to close it goes along at once: taken up and not closed, it would live the longer.
func (d *dialer) finish(hostPort string, takeUp []byte, after time.Duration) {
	select {
	case <-time.After(after):
	case <-d.life.Done():
		return
	}
	ctx, cancel := context.WithTimeout(d.life, d.DialTimeout)
	defer cancel()
	host, _, _ := net.SplitHostPort(hostPort)
	conn, err := d.dialOne(ctx, "tcp", hostPort, host, 1)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer conn.Close()
	closing := []byte{0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5} // length, xid, and -11 for closeSession
	if _, err := conn.Write(append(bytes.Clone(takeUp), closing...)); err == nil {
		_, _ = io.Copy(io.Discard, conn) // the server ends the connection with the session
	}
}

// fail notes why there is no connection to addr.
func (d *dialer) fail(addr string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life.Err() == nil { // after that, it is our own doing
		d.failure = fmt.Errorf("%s: %w", addr, err)
	}
}

// succeed notes that a server has granted a session. 0 means an expired session.
func (d *dialer) succeed(granted time.Duration) {
	if granted > 0 {
		d.granted.Store(int64(granted))
		d.longest.Store(max(d.longest.Load(), int64(granted))) // by one connection after the other
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failure = nil
}

// reason returns why the last attempt to connect has failed, if it has.
func (d *dialer) reason() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failure
}

// hosts is a zk.HostProvider. It does not resolve names, so that each dial finds the
// present address. It lets the library reconnect at once. The library's own one
// resolves only once. With a single server, it also waits for a second before it
// reconnects. One goroutine of the library uses it.
type hosts struct {
	list  []string
	next  int
	tried int // since the last connection

	connected time.Time
	short     int // connections in a row that came soon after the one before
}

const (
	// lasting is how long after one connection the next may come without being counted.
	lasting = time.Second
	// maxShort is how many in a row may come sooner before the library waits. Servers that drop each session as soon
	// as they have granted it would else be asked again without end, as fast as they can answer.
	maxShort = 10
)

// Init implements zk.HostProvider.
func (h *hosts) Init(list []string) error { h.list = list; return nil }

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.list) }

// Next implements zk.HostProvider. When all have been tried, the library waits for a
// second, and fails what has queued up.
func (h *hosts) Next() (host string, allTried bool) {
	host = h.list[h.next%len(h.list)]
	if allTried = h.tried == len(h.list) || h.short > maxShort; allTried {
		h.tried, h.short = 0, 0
	}
	h.next, h.tried = h.next+1, h.tried+1
	return host, allTried
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {
	if h.short++; time.Since(h.connected) >= lasting {
		h.short = 0
	}
	h.tried, h.connected = 0, time.Now()
}
