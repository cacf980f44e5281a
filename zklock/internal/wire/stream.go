package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// stream is one TCP connection of a session, between the library and the servers. It
// knows where frames begin and end, and works around these flaws of the library:
//
//   - The first answer names the session timeout. The library does not tell it.
//   - The library waits two thirds of a session for an answer, and seven sessions for
//     the first. Here no request is unanswered for longer than silence says: then
//     reading fails, and the library goes to the next server.
//   - The library keeps the last zxid in a field. One goroutine writes it with each
//     reply. Another one reads it after a reconnection, to tell the servers since when
//     watches may have missed something. This is a data race: if the reply comes first,
//     changes are missed. So replies lose their zxid here, and the field stays zero. The
//     two requests that carry it get what was seen before this connection.
//   - The library goes on if a server refuses to set its watches again. Here the connection ends by that.
//   - The library tries to take up a session for ever. See dialer.givenUp.
//   - The library answers a request that it cannot write at once, and once more when the
//     connection is given up. For credentials, which it sends again with each connection,
//     there is room for one answer only, and the library hangs for good. So no write fails
//     here: the connection is closed instead, and that is told by reading.
//
// The library writes with one goroutine and reads with another one. Both count requests
// without an answer, and the first of them starts the time for an answer:
//
//	Write   open 0 -> 1   deadline: now + silence
//	Read    any bytes     the same again, in the middle of a frame
//	Read    a reply ends  open 1 -> 0: no deadline; else the same again
//	Read    an event      answers nothing, and does not count
type stream struct {
	net.Conn
	dialer *dialer
	addr   string
	limit  time.Duration // of the first answer
	forget func() bool   // stops waiting for the end of the dialer

	// Of the goroutine that writes.
	asked bool
	since int64  // the last zxid before this connection; 0 if it asks for a new session
	given []byte // the request to take up the session that was given up; nil if there is none

	// Of the goroutine that reads.
	in   *bufio.Reader
	head [headSize]byte
	rest []byte // of the head, not yet passed on
	left int    // bytes of the frame after the head, not yet passed on

	mu          sync.Mutex
	established bool          // the request for a session has been answered
	open        int           // requests without an answer; the one for a session counts
	watches     []int32       // the xids of those that set watches again
	silence     time.Duration // how long they may be so
}

// Offsets in frames. A frame begins with its length.
const (
	headSize    = 4 + 4 + 8 + 4 // of a reply: length, xid, zxid, error; nothing that comes is shorter
	xidAt       = 4
	zxidAt      = 4 + 4
	errorAt     = 4 + 4 + 8
	timeoutAt   = 4 + 4     // in the first answer, after the version
	sessionAt   = 4 + 4 + 4 // in the first answer
	opAt        = 4 + 4     // in a request
	relativeAt  = 4 + 4 + 4 // in the request that sets watches again
	lastSeenAt  = 4 + 4     // in the request for a session, after the version
	takeUpAt    = 4 + 4 + 8 + 4
	passwordAt  = takeUpAt + 8 + 4
	passwordEnd = passwordAt + 16
)

const opSetWatches = 101

func newStream(conn net.Conn, d *dialer, addr string, limit time.Duration) *stream {
	s := &stream{Conn: conn, dialer: d, addr: addr, limit: limit}
	s.in = bufio.NewReader(progress{s})
	s.forget = context.AfterFunc(d.life, func() { conn.Close() })
	return s
}

// Write implements net.Conn. The library writes one request at a time.
func (s *stream) Write(p []byte) (int, error) {
	watches := false
	switch {
	case !s.asked:
		s.asked, s.since = true, s.dialer.zxid.Load()
		if s.dialer.givenUp() && len(p) >= passwordEnd {
			s.given, s.since = withZxid(p, lastSeenAt, 0), 0
			p = bytes.Clone(p)
			clear(p[takeUpAt : takeUpAt+8])
			clear(p[passwordAt:passwordEnd])
		}
		p = withZxid(p, lastSeenAt, s.since)
	case len(p) >= opAt+4 && binary.BigEndian.Uint32(p[opAt:]) == opSetWatches:
		// Not the present zxid: the replies of this connection say nothing of what the
		// watches have missed before it.
		p = withZxid(p, relativeAt, s.since)
		watches = true
	}
	s.mu.Lock()
	if watches {
		s.watches = append(s.watches, int32(binary.BigEndian.Uint32(p[xidAt:])))
	}
	if s.open++; s.open == 1 && s.established {
		s.expectAnswer()
	}
	s.mu.Unlock()
	if _, err := s.Conn.Write(p); err != nil {
		_ = s.failed(err)
		_ = s.Conn.Close()
	}
	return len(p), nil
}

// withZxid returns a copy of p with a number in it: a Writer must not change p.
func withZxid(p []byte, at int, zxid int64) []byte {
	if len(p) < at+8 {
		return p
	}
	p = bytes.Clone(p)
	binary.BigEndian.PutUint64(p[at:], uint64(zxid))
	return p
}

// expectAnswer starts the time for an answer again, or ends it if none is due. s.mu is
// held. SetReadDeadline fails on a closed connection alone, as the next call will.
func (s *stream) expectAnswer() {
	var deadline time.Time
	if s.open > 0 {
		deadline = time.Now().Add(s.silence)
	}
	_ = s.Conn.SetReadDeadline(deadline)
}

// progress is the reading side of a stream, before its buffer. Any bytes show that the
// server is alive. In the middle of a long frame, they extend the time for it.
type progress struct{ *stream }

// graceRead is how long Read looks for bytes once the time for them is over. If this process
// was late, and not the server, they are there already.
const graceRead = 10 * time.Millisecond

func (r progress) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = r.Conn.SetReadDeadline(time.Now().Add(graceRead)) // fails as the next call will
		n, err = r.Conn.Read(p)
	}
	if n > 0 {
		r.dialer.heard.Store(int64(time.Since(r.dialer.began)))
		if r.left > 0 && r.established {
			r.mu.Lock()
			r.expectAnswer()
			r.mu.Unlock()
		}
	}
	return n, err
}

// Read implements net.Conn.
func (s *stream) Read(p []byte) (n int, err error) {
	if len(s.rest) == 0 && s.left == 0 {
		if err = s.readHead(); err != nil {
			return 0, s.failed(err)
		}
	}
	if len(s.rest) > 0 {
		n = copy(p, s.rest)
		s.rest = s.rest[n:]
	} else {
		n, err = s.in.Read(p[:min(len(p), s.left)])
		s.left -= n
	}
	if len(s.rest) == 0 && s.left == 0 {
		s.answered()
	}
	if err != nil {
		err = s.failed(err)
	}
	return n, err
}

// readHead reads the head of the next frame, and takes the zxid out of a reply. Events
// and answers to pings have a negative xid, and the library takes no zxid from them.
func (s *stream) readHead() error {
	if _, err := io.ReadFull(s.in, s.head[:]); err != nil {
		return err
	}
	s.rest = s.head[:]
	s.left = max(int(binary.BigEndian.Uint32(s.head[:]))-(headSize-4), 0)
	if s.established && s.xid() >= 0 {
		if zxid := int64(binary.BigEndian.Uint64(s.head[zxidAt:])); zxid > 0 {
			s.dialer.zxid.Store(zxid)
		}
		clear(s.head[zxidAt : zxidAt+8])
		return s.watchesSet()
	}
	return nil
}

// watchesSet returns an error if the frame refuses to set watches again, as servers do that throttle requests. The library
// would go on without them.
func (s *stream) watchesSet() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.watches, s.xid())
	if i < 0 {
		return nil
	}
	s.watches = slices.Delete(s.watches, i, i+1)
	if code := int32(binary.BigEndian.Uint32(s.head[errorAt:])); code != 0 {
		return fmt.Errorf("the watches were not set again: error %d", code)
	}
	return nil
}

func (s *stream) xid() int32 { return int32(binary.BigEndian.Uint32(s.head[xidAt:])) }

// answered takes in that a frame has been read to its end.
func (s *stream) answered() {
	const event = -1
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.established {
		var granted time.Duration
		if binary.BigEndian.Uint64(s.head[sessionAt:]) != 0 { // 0: the session has expired
			granted = time.Duration(binary.BigEndian.Uint32(s.head[timeoutAt:])) * time.Millisecond
			// Not when it is asked for: without an answer, the old session may yet be taken up.
			s.dialer.zxid.Store(s.since)
			if s.given != nil && binary.BigEndian.Uint64(s.given[takeUpAt:]) != 0 {
				after := s.dialer.outlived()
				s.dialer.finishing.Go(func() { s.dialer.finish(s.addr, s.given, after) })
			}
		}
		s.dialer.succeed(granted)
		s.established, s.silence = true, s.dialer.silence()
	} else if s.xid() == event {
		return
	}
	s.open = max(s.open-1, 0)
	s.expectAnswer()
}

// failed notes why reading has failed, or writing. s.established changes before anything runs beside it.
func (s *stream) failed(err error) error {
	switch timeout := errors.Is(err, os.ErrDeadlineExceeded); {
	case s.established && timeout:
		s.dialer.fail(s.addr, fmt.Errorf("no answer within %v", s.silence))
		_ = s.Conn.Close() // a request may still be being written, as it does not fit into the buffers on the way
	case s.established, errors.Is(err, net.ErrClosed): // by us
	case timeout:
		s.dialer.fail(s.addr, fmt.Errorf("it accepts connections, but has not answered within %v", s.limit))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		s.dialer.fail(s.addr, fmt.Errorf("it closes the connection without an answer (as many connections from here as maxClientCnxns allows, less data than this client has seen, a port for TLS, or not ZooKeeper?): %w", err))
	default:
		s.dialer.fail(s.addr, err)
	}
	return err
}

// SetReadDeadline implements net.Conn: deadlines are those of expectAnswer.
func (s *stream) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn: a request that cannot be written has no answer.
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

// Close implements net.Conn.
func (s *stream) Close() error {
	s.forget()
	return s.Conn.Close()
}
