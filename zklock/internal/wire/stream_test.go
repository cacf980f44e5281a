package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/distlock-go/distlock/internal/testkit"
)

// newPatientDialer returns a dialer with streams that wait for answers for a day.
func newPatientDialer() *dialer {
	return newDialer(Target{Lease: func(time.Duration) time.Duration { return 24 * silenceShare * time.Hour }})
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
			watches, other := frame(int32(4), int32(opSetWatches), int64(0), int32(0)), frame(int32(5), int32(3), int64(0), int32(0))
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
			testkit.Must(t, err)
			read := bytes.Join([][]byte{granted,
				reply(1, 0, ""), reply(-1, 0x2000, "event"), reply(-2, 0x2000, ""), reply(2, 0, "long body of a reply"), reply(3, 0, "")}, nil)
			if !bytes.Equal(got, read) {
				t.Errorf("%s, round %d: read %x, want %x", how, round, got, read)
			}
		}
	}
}

// TestForsakenSeesAnew: servers refuse a client that has seen more than they have, and rebuilt ones always would. So where
// nothing relies on the session any more, another is asked for as if nothing had been seen. It is never taken up like that:
// servers that have seen less may not know yet that it has lost a node.
func TestForsakenSeesAnew(t *testing.T) {
	t.Parallel()
	frame := func(n int) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(n)), bytes.Repeat([]byte{1}, n)...)
	}
	const seen = 0x500000003
	var ended atomic.Int32
	d := newDialer(Target{
		Lease: func(lease time.Duration) time.Duration { return lease },
		Dial: func(context.Context, string, string) (net.Conn, error) {
			ended.Add(1)
			return nil, io.ErrUnexpectedEOF
		},
	})
	d.zxid.Store(seen)
	// connect sends a request for a session, reads an answer, and returns what was asked for.
	connect := func(answer []byte) (lastSeen, session uint64) {
		sent := &script{Reader: bytes.NewReader(answer)}
		s := newStream(sent, d, "", 0)
		request := frame(passwordEnd - 4)
		if _, err := s.Write(request); err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(s)
		asked := sent.Bytes()
		if fresh := bytes.Count(asked[passwordAt:passwordEnd], []byte{0}) == 16; fresh != (binary.BigEndian.Uint64(asked[takeUpAt:]) == 0) {
			t.Errorf("a session and another's password: %x", asked)
		}
		watches := frame(40)
		binary.BigEndian.PutUint32(watches[opAt:], opSetWatches)
		if _, err := s.Write(watches); err != nil {
			t.Fatal(err)
		}
		lastSeen = binary.BigEndian.Uint64(asked[lastSeenAt:])
		if since := binary.BigEndian.Uint64(sent.Bytes()[len(asked)+relativeAt:]); since != lastSeen {
			t.Errorf("watches since %#x, and %#x seen", since, lastSeen)
		}
		return lastSeen, binary.BigEndian.Uint64(asked[takeUpAt:])
	}
	expect := func(what string, answer []byte, wantSeen uint64, wantFresh bool) {
		t.Helper()
		if lastSeen, session := connect(answer); lastSeen != wantSeen || (session == 0) != wantFresh {
			t.Errorf("%s: asked for session %x, having seen %#x", what, session, lastSeen)
		}
	}
	granted := frame(36)
	binary.BigEndian.PutUint32(granted[timeoutAt:], uint32(24*time.Hour/time.Millisecond))
	silent := func() { d.heard.Store(-int64(48 * time.Hour)) }
	expect("the first", nil, seen, false)
	expect("the second", granted, seen, false)
	expect("just after an answer", nil, seen, false)
	silent()
	expect("after a lease", nil, 0, true)
	expect("after a lease, once more", granted[:30], 0, true)
	expect("after half an answer", nil, seen, false)
	silent()
	expect("after another lease", granted, 0, true)
	expect("in the new session", nil, 0, false)
	if d.finishing.Wait(); ended.Load() != 1 {
		t.Errorf("%d sessions are ended, want the one that the new session has followed", ended.Load())
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
	s.established, s.silence = true, 100*time.Millisecond
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = s.Write(make([]byte, 64))
	}()
	testkit.Until(t, "reading fails", func() bool {
		_, err := s.Read(make([]byte, 4))
		return err != nil
	})
	<-wrote
}

// FuzzStream: whatever a server sends, what comes out is as long as what went in, and the
// same but for the numbers that are taken out of replies.
func FuzzStream(f *testing.F) {
	frame := func(n int, rest ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(n)), rest...)
	}
	f.Add([]byte{}, 1)
	f.Add(frame(16, make([]byte, 16)...), 3)
	f.Add(frame(-1, make([]byte, 40)...), 7)
	f.Add(bytes.Repeat(frame(20, bytes.Repeat([]byte{1}, 20)...), 3), 5)
	f.Fuzz(func(t *testing.T, sent []byte, size int) {
		conn := newStream(&script{Reader: bytes.NewReader(sent)}, newPatientDialer(), "", 0)
		p := make([]byte, 1+max(size, 0)%64)
		var got []byte
		for range 10 * (len(sent) + 1) {
			n, err := conn.Read(p)
			if got = append(got, p[:n]...); err != nil {
				break
			}
		}
		if len(got) > len(sent) || len(sent)-len(got) >= headSize {
			t.Errorf("%d bytes of %d came through", len(got), len(sent))
		}
	})
}

// TestHosts: all hosts are tried one after the other. The pause comes when all were
// tried in vain, and none comes just after a connection.
func TestHosts(t *testing.T) {
	t.Parallel()
	var r hosts
	if err := r.Init([]string{"a", "b"}); err != nil || r.Len() != 2 {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, step := range "nnnnncnnn" {
		if step == 'c' {
			r.Connected()
			continue
		}
		host, pause := r.Next()
		if pause {
			got.WriteString("-")
		}
		got.WriteString(host)
	}
	if want := "ab-ab-aba-b"; got.String() != want {
		t.Errorf("the hosts come as %s, want %s", got.String(), want)
	}
}

// TestLateReader: an answer that is there counts, however late this process reads it.
func TestLateReader(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer listener.Close()
	near, err := net.Dial("tcp", listener.Addr().String())
	testkit.Must(t, err)
	defer near.Close()
	far, err := listener.Accept()
	testkit.Must(t, err)
	defer far.Close()
	reply := make([]byte, headSize)
	reply[3] = headSize - 4
	reply[xidAt+3] = 1
	if _, err := far.Write(reply); err != nil {
		t.Fatal(err)
	}
	s := newStream(near, newPatientDialer(), "", 0)
	s.established, s.silence, s.asked = true, -time.Second, true // over as soon as it begins
	if _, err := s.Write(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(s, make([]byte, headSize)); err != nil {
		t.Error("the answer was there:", err)
	}
	if _, err := s.Write(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("no answer was there:", err)
	}
}
