package testkit

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
)

// Serve listens on a port of the loopback until the end of the test, by TLS if config is not nil, and returns its address.
// Each connection is given to a serve of its own, and closed after it. A port that is closed instead, so that nobody
// answers there, may soon be that of another test's server.
func Serve(t testing.TB, config *tls.Config, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// Front listens as Serve does, before a server at target: what comes is passed on to it.
func Front(t testing.TB, config *tls.Config, target string) (addr string) {
	t.Helper()
	return Serve(t, config, func(client net.Conn) {
		server, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		defer server.Close()
		go func() {
			_, _ = io.Copy(client, server) // it ends with an error when either is closed
			client.Close()
		}()
		_, _ = io.Copy(server, client)
	})
}

// Silent is the address of a port that takes connections, until the end of the test, and says nothing.
func Silent(t testing.TB) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // the system takes them, and nobody accepts them
	Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}
