package meter

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// scanRedis counts commands: arrays of bulk strings.
func scanRedis(r *bufio.Reader, count func()) error {
	for {
		n, err := redisNumber(r, '*')
		if err != nil {
			return err
		}
		for range n {
			size, err := redisNumber(r, '$')
			if err != nil {
				return err
			}
			if _, err := r.Discard(size + len("\r\n")); err != nil {
				return err
			}
		}
		count()
	}
}

func redisNumber(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("meter: not a Redis command: it begins with %q", line[0])
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// scanMySQL counts the packets that begin a command; those of the greeting and
// the later ones of a long command have a sequence number.
func scanMySQL(r *bufio.Reader, count func()) error {
	const quit = 1
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		size := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
		if size == 0 {
			continue // an answer of the greeting
		}
		command, err := r.ReadByte()
		if err != nil {
			return err
		}
		if _, err := r.Discard(size - 1); err != nil {
			return err
		}
		if head[3] == 0 && command != quit {
			count()
		}
	}
}

// scanZooKeeper counts frames other than the one that asks for a session and those
// that keep it alive, which a client sends whether it locks or not.
func scanZooKeeper(r *bufio.Reader, count func()) error {
	const ping = -2
	for first := true; ; first = false {
		var head [8]byte // the length of what follows, and the request's number
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		if _, err := r.Discard(int(binary.BigEndian.Uint32(head[:])) - 4); err != nil {
			return err
		}
		if xid := int32(binary.BigEndian.Uint32(head[4:])); !first && xid != ping {
			count()
		}
	}
}

// scanEtcd counts gRPC messages: a unary call is one, and so is each of a stream,
// be it that a watch begins or ends or that a lease is kept alive. The pings of
// the transport are not counted.
func scanEtcd(r *bufio.Reader, count func()) error {
	const (
		preface = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		data    = 0
		reset   = 3
		end     = 1
	)
	if _, err := r.Discard(preface); err != nil {
		return err
	}
	streams := make(map[uint32]*messages)
	for {
		var head [9]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		kind, flags, id := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		if kind != data {
			if _, err := r.Discard(size); err != nil {
				return err
			}
		} else {
			m := streams[id]
			if m == nil {
				m = new(messages)
				streams[id] = m
			}
			// gRPC pads no frames.
			if err := m.read(r, size, count); err != nil {
				return err
			}
		}
		if kind == reset || flags&end != 0 && (kind == data || kind == 1) {
			delete(streams, id)
		}
	}
}

// messages finds the messages of one stream: five bytes, of which the last four
// are a length, and as much again. Frames may cut them anywhere.
type messages struct {
	head []byte // of the message that has begun
	left int    // of its body
}

func (m *messages) read(r *bufio.Reader, size int, count func()) error {
	for size > 0 {
		if m.left > 0 {
			n, err := r.Discard(min(m.left, size))
			if err != nil {
				return err
			}
			m.left -= n
			size -= n
			continue
		}
		b, err := r.ReadByte()
		if err != nil {
			return err
		}
		size--
		if m.head = append(m.head, b); len(m.head) == 5 {
			m.left = int(binary.BigEndian.Uint32(m.head[1:]))
			m.head = m.head[:0]
			count()
		}
	}
	return nil
}
