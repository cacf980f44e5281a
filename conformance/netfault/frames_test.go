package netfault

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/distlock-go/distlock/internal/testkit"
)

// frame is one of HTTP/2.
func frame(kind, flags, stream byte, payload string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))[1:]
	return append(append(b, kind, flags, 0, 0, 0, stream), payload...)
}

// TestFramesInAnyPieces: the pieces are the bytes that came, and one begins with each request, however the bytes arrive
// after the first.
func TestFramesInAnyPieces(t *testing.T) {
	const windowUpdate, ping = 8, 6
	begins := [][]byte{
		slices.Concat(frame(typeHeaders, 0, 1, "abc"), frame(typeData, endStream, 1, "a call"), frame(windowUpdate, 0, 0, "1234")),
		slices.Concat(frame(typeHeaders, 0, 3, "abc"), frame(windowUpdate, 0, 3, "1234"), frame(typeData, 0, 3, "a first message")),
		slices.Concat(frame(typeHeaders, 0, 5, "abc"), frame(typeData, endStream, 5, strings.Repeat("x", 300)), frame(ping, 0, 0, "12345678")),
		slices.Concat(frame(typeData, 0, 3, "a second message"), frame(typeData, endStream, 3, "")),
		slices.Concat(frame(typeHeaders, 0, 7, "abc"), frame(typeRstStream, 0, 7, "1234")),
	}
	first := frame(typeSettings, 0, 0, "")
	rest := slices.Concat(begins...)
	for size := 1; size <= len(rest); size++ {
		var f frames
		var got [][]byte
		for part := range slices.Values(append([][]byte{slices.Concat([]byte(clientPreface), first)}, slices.Collect(slices.Chunk(rest, size))...)) {
			for _, k := range f.split(toServer, bytes.Clone(part)) {
				if k.begins || got == nil {
					got = append(got, nil)
				}
				got[len(got)-1] = append(got[len(got)-1], k.bytes...)
			}
		}
		if !slices.EqualFunc(got[1:], begins, bytes.Equal) {
			t.Fatalf("in pieces of %d bytes: cut into %q, want %q", size, got[1:], begins)
		}
		if len(f.streams) > 0 {
			t.Errorf("streams are remembered that have ended: %v", f.streams)
		}
	}
}

// TestOtherProtocolsAreRuns: what does not begin as HTTP/2 does is not cut.
func TestOtherProtocolsAreRuns(t *testing.T) {
	for direction, text := range []string{toServer: "*1\r\n$4\r\nPING\r\n", toClient: "+PONG\r\n"} {
		var f frames
		if got := f.split(direction, []byte(text)); len(got) != 1 || !got[0].run || string(got[0].bytes) != text {
			t.Errorf("%q was cut: %v", text, got)
		}
	}
}

// TestHTTP2Requests: over HTTP/2 a request is counted once, whatever the protocol says besides, and of two that overlap
// the one that is meant is held back.
func TestHTTP2Requests(t *testing.T) {
	var mu sync.Mutex
	var served []string
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		served = append(served, string(body))
		w.Write(body)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	p, err := NewTCPProxy(l.Addr().String(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	post := func(body string) error {
		r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, "http://"+p.Addr(), strings.NewReader(body))
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		return err
	}
	for range 5 {
		if err := post("before"); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.Requests(); n != 5 {
		t.Errorf("five requests were counted as %d", n)
	}
	p.HoldRequest(2)
	if err := post("passes"); err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	go func() { told <- post("held") }()
	testkit.Until(t, "a request is held back", func() bool { return p.Fired() > 0 })
	mu.Lock()
	if slices.Contains(served, "held") {
		t.Error("the server has what is held back")
	}
	mu.Unlock()
	p.Release()
	if err := <-told; err != nil {
		t.Error(err)
	}
}
