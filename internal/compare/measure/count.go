package measure

import (
	"bytes"
	"encoding/binary"
	"strconv"
)

// counter is fed what a client sends on one connection, in pieces as they come, and
// returns how many requests begin in the piece.
type counter func(piece []byte) int

// counters by store. Each understands no more of its protocol than it takes to find
// where a request begins; connections must be neither encrypted nor compressed.
var counters = map[string]func() counter{
	// An array of bulk strings: *2\r\n$3\r\nGET\r\n$1\r\nk\r\n.
	"redis": countRESP,

	// A packet is three bytes of length, a sequence number, the payload. Number 0
	// begins a command; the packets of the handshake have others.
	"mysql": func() counter {
		return frames{head: 4,
			body:   func(h []byte) int { return int(h[0]) | int(h[1])<<8 | int(h[2])<<16 },
			counts: func(h []byte) bool { return h[3] == 0 },
		}.counter()
	},

	// A message is a letter and four bytes of length, which counts itself. The first has no letter. S, a Sync, ends a
	// request, and Q is one of its own.
	"postgres": func() counter {
		first := true
		return frames{head: 5,
			body: func(h []byte) int {
				if first {
					first = false
					return int(binary.BigEndian.Uint32(h)) - 5
				}
				return int(binary.BigEndian.Uint32(h[1:])) - 4
			},
			counts: func(h []byte) bool { return !first && (h[0] == 'S' || h[0] == 'Q') },
		}.counter()
	},

	// A frame is four bytes of length and that many more. The first one asks for the
	// session and does not count. Pings count: they renew the session.
	"zk": func() counter {
		first := true
		return frames{head: 4,
			body: func(h []byte) int { return int(binary.BigEndian.Uint32(h)) },
			counts: func([]byte) bool {
				request := !first
				first = false
				return request
			},
		}.counter()
	},

	// HTTP/2: a preface of 24 bytes; then frames of three bytes of length, type, flags,
	// stream. A DATA frame (type 0) with content is a message of gRPC; ours are much
	// smaller than a frame may be. Calls with a stream, such as a watch, send a message
	// for each request as others do.
	"etcd": func() counter {
		return frames{skip: 24, head: 9,
			body:   func(h []byte) int { return int(h[0])<<16 | int(h[1])<<8 | int(h[2]) },
			counts: func(h []byte) bool { return h[3] == 0 && (h[0] != 0 || h[1] != 0 || h[2] != 0) },
		}.counter()
	},
}

// frames is a protocol of heads of a fixed size that tell the length of what follows.
type frames struct {
	skip   int // bytes before the first
	head   int
	body   func(head []byte) int
	counts func(head []byte) bool
}

func (f frames) counter() counter {
	var head []byte
	skip := f.skip
	return func(piece []byte) (n int) {
		for {
			jump := min(skip, len(piece))
			piece, skip = piece[jump:], skip-jump
			take := min(f.head-len(head), len(piece))
			head, piece = append(head, piece[:take]...), piece[take:]
			if skip > 0 || len(head) < f.head {
				return n
			}
			if f.counts(head) {
				n++
			}
			skip, head = f.body(head), head[:0]
		}
	}
}

// countRESP counts a command when its last string begins.
func countRESP() counter {
	var line []byte
	skip, left := 0, 0 // bytes of the string, and strings of the command, still to come
	return func(piece []byte) (n int) {
		for {
			jump := min(skip, len(piece))
			piece, skip = piece[jump:], skip-jump
			if skip > 0 || len(piece) == 0 {
				return n
			}
			end := bytes.IndexByte(piece, '\n')
			if end < 0 {
				line = append(line, piece...)
				return n
			}
			line = append(line, piece[:end]...)
			piece = piece[end+1:]
			number, _ := strconv.Atoi(string(bytes.TrimSpace(line[min(1, len(line)):])))
			if len(line) > 0 && line[0] == '*' {
				left = number
			} else if left--; left == 0 {
				n++
			}
			if len(line) > 0 && line[0] == '$' {
				skip = number + len("\r\n")
			}
			line = line[:0]
		}
	}
}
