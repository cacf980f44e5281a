package netfault

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"
)

// proxyConn is one connection through a TCPProxy. Each direction has a reader, to
// judge what arrives, and a writer, to wait until it may go on: a delay must not slow
// down what comes later, as it would if one goroutine did both.
type proxyConn struct {
	p              *TCPProxy
	client, server *net.TCPConn
	killed         chan struct{}
	once           sync.Once

	// Guarded by p.mu.
	spoken     bool
	direction  int     // of the last bytes, once spoken
	mute       [2]bool // a message was swallowed, and so is all that follows
	lost       [2]bool
	clientGone bool
}

// chunk is a piece of the stream on its way from reader to writer. Nil bytes are
// its end.
type chunk struct {
	bytes []byte
	verdict
}

// serve connects a client through and stays until the connection is over.
func (p *TCPProxy) serve(client net.Conn) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	server, err := dialer.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		reset(client.(*net.TCPConn))
		return
	}
	c := &proxyConn{p: p, client: client.(*net.TCPConn), server: server.(*net.TCPConn), killed: make(chan struct{})}
	p.mu.Lock()
	p.conns[c] = true
	if p.ctx.Err() != nil { // Close has been through the list already
		c.kill()
	}
	p.mu.Unlock()
	var ways sync.WaitGroup
	ways.Go(func() { c.pipe(toServer, c.client, c.server) })
	ways.Go(func() { c.pipe(toClient, c.server, c.client) })
	ways.Wait()
	c.kill()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// kill ends the connection at once, with a reset to both sides, as a router or a
// dead host would.
func (c *proxyConn) kill() {
	c.once.Do(func() {
		close(c.killed)
		reset(c.client)
		reset(c.server)
	})
}

func reset(conn *net.TCPConn) {
	conn.SetLinger(0) // fails only on a closed connection
	conn.Close()
}

func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }

// pipe carries one direction until it has ended.
func (c *proxyConn) pipe(direction int, from, to *net.TCPConn) {
	// Deep enough that a held or delayed connection keeps accepting what a lock
	// client sends in seconds.
	queue := make(chan chunk, 256)
	var reader sync.WaitGroup
	reader.Go(func() { c.read(direction, from, queue) })
	c.write(direction, to, queue)
	reader.Wait()
}

func (c *proxyConn) read(direction int, from *net.TCPConn, queue chan<- chunk) {
	buf := make([]byte, 64<<10)
	var f frames
	passed := make(map[uint32]bool) // the streams on which a request or reply was begun that is not discarded
	for {
		n, err := from.Read(buf)
		if n > 0 {
			for _, piece := range f.split(direction, bytes.Clone(buf[:n])) {
				v := c.p.judge(c, direction, piece, piece.rest && passed[piece.stream])
				if delete(passed, piece.stream); piece.begins && !v.drop {
					passed[piece.stream] = true
				}
				if v.cut {
					c.kill()
					return
				}
				if !v.drop && !c.put(queue, chunk{piece.bytes, v}) {
					return
				}
			}
		}
		if err != nil {
			if len(f.head) > 0 {
				c.put(queue, chunk{bytes: f.head})
			}
			// A reset is passed on as an end, so that what is held or delayed
			// still reaches the server: the client is gone, its request is not.
			if v := c.p.ended(c, direction); !v.drop {
				c.put(queue, chunk{nil, v})
			}
			return
		}
	}
}

func (c *proxyConn) put(queue chan<- chunk, k chunk) bool {
	select {
	case queue <- k:
		return true
	case <-c.killed:
		return false
	}
}

func (c *proxyConn) write(direction int, to *net.TCPConn, queue <-chan chunk) {
	for {
		var k chunk
		select {
		case k = <-queue:
		case <-c.killed:
			return
		}
		if !c.await(k.verdict) {
			return
		}
		if k.bytes == nil {
			to.CloseWrite() // a failure means that the other side has gone too
			return
		}
		if err := send(to, k); err != nil {
			if direction == toServer {
				c.kill() // the server is gone: the client must not wait for a reply
			}
			// A client that has gone takes nothing from what it has sent before: the
			// way to the server goes on until its own end.
			return
		}
	}
}

// await waits until a chunk may go on; it is false if the connection ends before.
func (c *proxyConn) await(v verdict) bool {
	if v.hold != nil {
		select {
		case <-v.hold:
		case <-c.killed:
			return false
		}
	}
	wait := time.Until(v.due)
	if v.due.IsZero() || wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.killed:
		return false
	}
}

func send(to *net.TCPConn, k chunk) error {
	if !k.slice {
		_, err := to.Write(k.bytes)
		return err
	}
	for i := range k.bytes {
		// Without delay (Go's default) each write leaves as a segment of its own.
		if _, err := to.Write(k.bytes[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}
