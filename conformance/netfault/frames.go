package netfault

import (
	"bytes"
	"encoding/binary"
)

// frames cuts one direction of a connection where a request or a reply begins: over HTTP/2, and so over gRPC, at the
// frame that opens a stream, and at each later message of that stream. What HTTP/2 says by itself, such as a ping or an
// opened window, would else be a run of bytes like any other, and requests that overlap would be one. The bytes of other
// protocols stay whole. The layout of a frame is that of RFC 9113, section 4.1.
type frames struct {
	begun, http2 bool
	head         []byte          // of a frame, until it is whole
	left         int             // bytes of the present frame that are still to come
	streams      map[uint32]bool // those that are open this way; true once they had data
}

const (
	frameHead     = 9
	clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

	typeData      = 0
	typeHeaders   = 1
	typeRstStream = 3
	typeSettings  = 4
	endStream     = 1 // a flag
)

// piece is what has arrived, up to the next request or reply.
type piece struct {
	bytes  []byte
	begins bool   // with a request or reply
	rest   bool   // it begins with the data of a request or reply that has begun with its headers
	stream uint32 // of either
	run    bool   // it is of another protocol: what counts is a change of direction
}

// split returns what has arrived, as the pieces that can be judged. It may keep back some bytes for the next call.
func (f *frames) split(direction int, b []byte) []piece {
	if !f.begun {
		f.begun = true
		if f.http2 = speaksHTTP2(direction, b); f.http2 && direction == toServer {
			f.left = len(clientPreface)
		}
		f.streams = make(map[uint32]bool)
	}
	if !f.http2 {
		return []piece{{bytes: b, run: true}}
	}
	b = append(f.head, b...)
	f.head = nil
	var all []piece
	next, from, at := piece{}, 0, 0
	cut := func() {
		if next.bytes = b[from:at]; at > from {
			all = append(all, next)
		}
		from = at
	}
	for at < len(b) {
		if f.left == 0 {
			if len(b)-at < frameHead {
				f.head = bytes.Clone(b[at:])
				break
			}
			f.left = frameHead + int(b[at])<<16 + int(b[at+1])<<8 + int(b[at+2])
			if k := f.judge(b[at:]); k.begins || k.rest {
				cut()
				next = k
			}
		}
		n := min(f.left, len(b)-at)
		f.left -= n
		at += n
	}
	cut()
	return all
}

// judge says whether a request or reply begins, or goes on, with the frame at the start of b. The server counts the time
// that a request has from its headers on, so these must not be there before its data is.
func (f *frames) judge(b []byte) piece {
	kind, flags, stream := b[3], b[4], binary.BigEndian.Uint32(b[5:])
	had, known := f.streams[stream]
	headers, data := kind == typeHeaders, kind == typeData && f.left > frameHead
	if headers || data {
		f.streams[stream] = data
	}
	if kind == typeRstStream || flags&endStream != 0 { // other frames with that bit are of stream 0
		delete(f.streams, stream)
	}
	return piece{begins: headers && !known || data && had, rest: data && !had, stream: stream}
}

// speaksHTTP2 judges by the first bytes: the preface of a client, or the settings with which a server begins.
func speaksHTTP2(direction int, b []byte) bool {
	if direction == toServer {
		return bytes.HasPrefix(b, []byte(clientPreface))
	}
	return len(b) >= frameHead && b[3] == typeSettings && bytes.Equal(b[4:frameHead], make([]byte, 5)) && b[0] == 0 && b[2]%6 == 0
}
