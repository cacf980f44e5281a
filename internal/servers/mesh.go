package servers

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/distlock-go/distlock/conformance/netfault"
)

// mesh is the network between the members of an ensemble. Each member reaches each other one over links of this pair
// and direction. So one member can be cut off, while the rest of them and all clients notice nothing.
type mesh struct {
	links   [][]map[int]*netfault.TCPProxy // from, to, and the port of the latter
	running sync.WaitGroup
	close   []io.Closer
}

func newMesh(sites []memberSite) (*mesh, error) {
	m := &mesh{links: make([][]map[int]*netfault.TCPProxy, len(sites))}
	for i := range sites {
		m.links[i] = make([]map[int]*netfault.TCPProxy, len(sites))
		for j, to := range sites {
			if i == j {
				continue
			}
			m.links[i][j] = make(map[int]*netfault.TCPProxy)
			for _, port := range []int{to.peer, to.election} {
				p, err := netfault.NewTCPProxy(loopback(port), uint64(port))
				if err != nil {
					return nil, errors.Join(err, m.Close())
				}
				m.links[i][j][port] = p
				m.close = append(m.close, p)
			}
		}
	}
	return m, nil
}

// cut silences all links from and to member i.
func (m *mesh) cut(i int, on bool) {
	for from := range m.links {
		for to := range m.links {
			if from == to || from != i && to != i {
				continue
			}
			for _, p := range m.links[from][to] {
				p.Drop(on, on)
			}
		}
	}
}

// Close ends all connections and returns when nothing of the mesh runs any more.
func (m *mesh) Close() error {
	var errs []error
	for _, c := range m.close {
		errs = append(errs, c.Close())
	}
	m.running.Wait()
	return errors.Join(errs...)
}

// front listens and hands over each connection with a new one, to the place that route finds for it.
func (m *mesh) front(route func(conn net.Conn, in *bufio.Reader) (net.Conn, error)) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	m.close = append(m.close, l)
	m.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // only Close ends it
			}
			m.running.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				out, err := route(conn, in)
				if err != nil {
					return
				}
				defer out.Close()
				go func() {
					// Ends with the connections, which the other direction closes.
					_, _ = io.Copy(conn, out)
					conn.Close()
				}()
				_, _ = io.Copy(out, in)
			})
		}
	})
	return l.Addr().String(), nil
}

// etcdHost is the name of a member in its peer URL. It stands for no address: an HTTP proxy is asked for it. There is
// no other way to tell the members apart that send to one peer URL, which is the same for all of them.
func etcdHost(i int) string { return fmt.Sprintf("m%d.distlock.test", i) }

// tunnels is an HTTP proxy for member i of an etcd cluster. It connects it to the others by their names.
func (m *mesh) tunnels(i int, sites []memberSite) (addr string, err error) {
	return m.front(func(conn net.Conn, in *bufio.Reader) (net.Conn, error) {
		req, err := http.ReadRequest(in)
		if err != nil {
			return nil, err
		}
		for j, to := range sites {
			if host, _, _ := strings.Cut(req.Host, ":"); i == j || host != etcdHost(j) || req.Method != http.MethodConnect {
				continue
			}
			out, err := net.Dial("tcp", m.links[i][j][to.peer].Addr())
			if err == nil {
				_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
			}
			return out, err
		}
		return nil, fmt.Errorf("servers: no way to %s", req.Host)
	})
}

// ballots is the election port of member j of a ZooKeeper ensemble, as member i sees it. A server that is called by one
// with a lower number hangs up, and calls back at the address that the caller has given. That would be one past the
// links, so this puts ballots from the other side into its place.
func (m *mesh) ballots(i, j int, sites []memberSite, back func() string) (addr string, err error) {
	link := m.links[i][j][sites[j].election].Addr()
	return m.front(func(conn net.Conn, in *bufio.Reader) (net.Conn, error) {
		var head struct {
			Version, Server int64
			Length          int32
		}
		if err := binary.Read(in, binary.BigEndian, &head); err != nil {
			return nil, err
		}
		if _, err := in.Discard(int(head.Length)); err != nil {
			return nil, err
		}
		out, err := net.Dial("tcp", link)
		if err != nil {
			return nil, err
		}
		head.Length = int32(len(back()))
		hello, err := binary.Append(nil, binary.BigEndian, head)
		if err == nil {
			_, err = out.Write(append(hello, back()...))
		}
		return out, err
	})
}
