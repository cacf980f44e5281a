package measure

import (
	"encoding/binary"
	"testing"
)

func zkFrame(xid int32, body int) []byte {
	f := binary.BigEndian.AppendUint32(nil, uint32(8+body))
	f = binary.BigEndian.AppendUint32(f, uint32(xid))
	return append(f, make([]byte, 4+body)...)
}

func h2Frame(kind byte, body int) []byte {
	return append([]byte{byte(body >> 16), byte(body >> 8), byte(body), kind, 0, 0, 0, 0, 1}, make([]byte, body)...)
}

func join(parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// What a request is must not depend on where the network cuts the stream.
func TestCounters(t *testing.T) {
	long := make([]byte, 300)
	for i := range long {
		long[i] = '\n' // in a string, bytes mean nothing
	}
	for store, c := range map[string]struct {
		stream []byte
		want   int
	}{
		"redis": {join([]byte("*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\n*\r\n$300\r\n"), long, []byte("\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n")), 3},
		"mysql": {join([]byte{2, 0, 0, 1, 'h', 'i'}, // of the handshake
			[]byte{1, 0, 0, 0, 14}, append([]byte{0, 2, 0, 0}, make([]byte, 512)...), []byte{0, 0, 0, 0}), 3},
		"postgres": {join([]byte{0, 0, 0, 9, 0, 3, 0, 0, 0}, []byte{'p', 0, 0, 0, 6, 'S', 'Q'}, []byte{'P', 0, 0, 0, 5, 0}, []byte{'S', 0, 0, 0, 4},
			[]byte{'Q', 0, 0, 0, 5, 0}), 2},
		"zk":   {join(zkFrame(0, 40), zkFrame(1, 100), zkFrame(-2, 0), zkFrame(2, 7)), 3},
		"etcd": {join([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), h2Frame(4, 6), h2Frame(1, 30), h2Frame(0, 70), h2Frame(0, 0), h2Frame(6, 8), h2Frame(1, 9), h2Frame(0, 12)), 2},
	} {
		for piece := 1; piece <= len(c.stream); piece++ {
			count, got := counters[store](), 0
			for rest := c.stream; len(rest) > 0; {
				n := min(piece, len(rest))
				got += count(rest[:n])
				rest = rest[n:]
			}
			if got != c.want {
				t.Errorf("%s in pieces of %d bytes: %d requests, want %d", store, piece, got, c.want)
			}
		}
	}
}
