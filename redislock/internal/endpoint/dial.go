// Package endpoint has what the drivers know of a Redis server, whatever their locks are:
//
//	sender.go   one way to send, and to send again   dial.go      a connection by TLS
//	script.go   a request, and whether it was sent   eviction.go  a setting that is bad
//	fate.go     what an error says of it
//	batcher.go  pipelines, which bound the connections
//	direct.go   requests on the goroutines of callers
package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// maxHandshake bounds a TLS handshake. A server that does not speak TLS takes the beginning
// of one for that of a command, and says nothing.
const maxHandshake = 3 * time.Second

// DialTLS returns what connects the client instead of go-redis. go-redis reports a handshake
// without an answer as the end of a context, and repeats it.
func DialTLS(timeout time.Duration, config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialer := net.Dialer{Timeout: timeout, KeepAlive: time.Minute}
		raw, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		// A copy, because each server of a cluster has a name of its own.
		own := config.Clone()
		if own.ServerName == "" {
			own.ServerName = strings.Trim(addr[:strings.LastIndex(addr, ":")], "[]")
		}
		conn := tls.Client(raw, own)
		limit := min(timeout*3/4, maxHandshake) // before the end of the context, which says nothing
		bounded, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err = conn.HandshakeContext(bounded)
		if err == nil {
			return conn, nil
		}
		_ = raw.Close()
		if bounded.Err() != nil && !errors.Is(ctx.Err(), context.Canceled) {
			err = fmt.Errorf("no answer from %s to the TLS handshake within %v: it may be a port without TLS", addr, limit)
		}
		return nil, err
	}
}
