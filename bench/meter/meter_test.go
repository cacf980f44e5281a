package meter

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
)

// frame is a HTTP/2 frame.
func frame(kind, flags byte, stream uint32, body []byte) []byte {
	b := []byte{byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), body...)
}

// grpc is a message of n bytes.
func grpc(n int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)), make([]byte, n)...)
}

func mysqlPacket(sequence byte, body ...byte) []byte {
	return append([]byte{byte(len(body)), byte(len(body) >> 8), 0, sequence}, body...)
}

func zkFrame(xid int32, body int) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+body))
	return append(binary.BigEndian.AppendUint32(b, uint32(xid)), make([]byte, body)...)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestScan(t *testing.T) {
	big := grpc(40000)
	preface := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	for _, tc := range []struct {
		name string
		kind servers.Kind
		sent []byte
		want int
	}{
		{"redis: nothing", servers.Redis, nil, 0},
		{"redis: pipelined, and a value with line ends", servers.Redis,
			[]byte("*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n*1\r\n*1\r\n$4\r\nPING\r\n"), 3},
		{"redis: half a command", servers.Redis, []byte("*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n"), 1},
		{"mysql: greeting, query, ping, prepared, quit", servers.MySQL, join(
			mysqlPacket(1, make([]byte, 200)...), mysqlPacket(3), // login, and an empty answer to a question
			mysqlPacket(0, 3, 'D', 'O'), mysqlPacket(0, 14), mysqlPacket(0, 23, 1, 0), mysqlPacket(0, 1)), 3},
		{"zk: session, requests, pings", servers.ZooKeeper, join(
			zkFrame(0, 40), zkFrame(1, 30), zkFrame(-2, 4), zkFrame(2, 0), zkFrame(-2, 4), zkFrame(-8, 9)), 3},
		{"etcd: settings, two calls, a stream of two, a ping", servers.Etcd, join(preface,
			frame(4, 0, 0, make([]byte, 12)),
			frame(1, 4, 1, make([]byte, 50)), frame(0, 1, 1, grpc(10)),
			frame(1, 4, 3, make([]byte, 50)), frame(0, 1, 3, grpc(0)),
			frame(1, 4, 5, make([]byte, 50)), frame(0, 0, 5, grpc(7)), frame(6, 0, 0, make([]byte, 8)), frame(0, 0, 5, grpc(3)),
			frame(3, 0, 5, make([]byte, 4))), 4},
		{"etcd: two messages in a frame, one in three, interleaved", servers.Etcd, join(preface,
			frame(0, 0, 1, join(grpc(3), grpc(2))),
			frame(0, 0, 3, big[:3]), frame(0, 0, 1, grpc(1)), frame(0, 0, 3, big[3:20000]), frame(0, 1, 3, big[20000:])), 4},
	} {
		for how, r := range map[string]io.Reader{
			"at once":      bytes.NewReader(tc.sent),
			"byte by byte": iotest.OneByteReader(bytes.NewReader(tc.sent)),
		} {
			got := 0
			err := scanners[tc.kind](bufio.NewReader(r), func() { got++ })
			if got != tc.want || err != io.EOF && err != io.ErrUnexpectedEOF {
				t.Errorf("%s, %s: %d requests, want %d; error %v", tc.name, how, got, tc.want, err)
			}
		}
	}
}

// echo is a server that says back what it hears.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// What is said arrives as it was said, in both directions, also what is not of the
// protocol; and it is counted over all connections.
func TestProxy(t *testing.T) {
	p, err := New(servers.Redis, echo(t))
	if err != nil {
		t.Fatal(err)
	}
	const command = "*1\r\n$4\r\nPING\r\n"
	for _, text := range []string{command, command + command, "HELLO? this is no command\r\n" + command} {
		c := dial(t, p.Addr())
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		heard := make([]byte, len(text))
		if _, err := io.ReadFull(c, heard); err != nil || string(heard) != text {
			t.Fatalf("said %q, heard %q, error %v", text, heard, err)
		}
	}
	// The count follows what was sent on, by a moment.
	for end := time.Now().Add(time.Minute); p.Requests() < 3 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if n := p.Requests(); n != 3 {
		t.Errorf("%d requests were counted, want 3", n)
	}
	last := dial(t, p.Addr())
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := last.Read(make([]byte, 1)); err == nil {
		t.Error("a connection has outlived the proxy")
	}
	if _, err := New("mem", "127.0.0.1:1"); err == nil {
		t.Error("there is a proxy for a protocol that is not known")
	}
}

// A server that is gone ends the connection, not the proxy.
func TestProxyWithoutServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	p, err := New(servers.Etcd, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := dial(t, p.Addr()).Read(make([]byte, 1)); err == nil {
		t.Error("there is an answer from nobody")
	}
}
