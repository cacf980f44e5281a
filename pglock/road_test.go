package pglock

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock/internal/testkit"
)

// road is the way to the server, of all connections of one Locker. Of netfault's proxy it differs in that it tells a login
// from what comes after it, and in that a dial may hang.
type road struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu    sync.Mutex
	mode  mode
	conns map[*roadConn]bool
	hung  int // dials that hang
	muted int // connections that have gone mute
}

// mode is what becomes of connections that are made from now on.
type mode int

const (
	passes mode = iota
	hangs       // the dial has no end of its own
	mutes       // after the login the server's answers are lost
)

// viaRoad opens a Locker that has a road of its own to the server. The parameters are of the URL.
func viaRoad(t *testing.T, params url.Values, opts Options) (*Locker, *road) {
	t.Helper()
	u := value[*url.URL](t)(url.Parse(server(t).URL()))
	u.RawQuery = params.Encode()
	config, opts, err := parseURL(u.String(), opts)
	must(t, err)
	p := &road{dial: config.ConnConfig.DialFunc, conns: make(map[*roadConn]bool)}
	config.ConnConfig.DialFunc = p.connect
	l := value[*Locker](t)(openOwn(t.Context(), config, opts))
	t.Cleanup(func() {
		p.set(passes)
		_ = l.Close()
	})
	return l, p
}

func (p *road) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
}

// cut closes all connections.
func (p *road) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Conn.Close()
	}
	clear(p.conns)
}

// mute has the server's answers on all connections lost.
func (p *road) mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.mute = true
	}
}

// count returns how many dials hang, and how many connections have gone mute after their login.
func (p *road) count() (hung, muted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hung, p.muted
}

func (p *road) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	p.mu.Lock()
	m := p.mode
	if m == hangs {
		p.hung++
		p.mu.Unlock()
		<-ctx.Done()
		p.mu.Lock()
		p.hung--
		p.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
	p.mu.Unlock()
	conn, err := p.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &roadConn{Conn: conn, road: p, login: m == mutes}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	return c, nil
}

// roadConn is one connection. Its road's mu guards what is its own.
type roadConn struct {
	net.Conn
	road  *road
	login bool   // it goes mute at the end of the login
	last  []byte // the latest bytes of the login
	mute  bool
}

// ready is what a server says in the end of a login.
var ready = []byte{'Z', 0, 0, 0, 5, 'I'}

// Read gives what has come, and nothing once the connection is mute.
func (c *roadConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.loses(b[:n]) {
			return n, err
		}
	}
}

func (c *roadConn) loses(b []byte) bool {
	c.road.mu.Lock()
	defer c.road.mu.Unlock()
	lost := c.mute
	if c.login && !c.mute {
		c.last = append(c.last, b...)
		if c.mute = bytes.HasSuffix(c.last, ready); c.mute {
			c.road.muted++
		}
	}
	return lost
}

func (c *roadConn) Close() error {
	c.road.mu.Lock()
	delete(c.road.conns, c)
	c.road.mu.Unlock()
	return c.Conn.Close()
}

// constructing is how many places of a pool are taken by connections that are being made.
func constructing(pool *pgxpool.Pool) int { return int(pool.Stat().ConstructingConns()) }

// A server that goes mute just after a login keeps no place in the pool for longer than dial_timeout: who comes next is served.
func TestPlaceOfMutedLogin(t *testing.T) {
	t.Parallel()
	l, p := viaRoad(t, url.Values{"dial_timeout": {"500ms"}}, Options{Table: table(t), MaxConns: 1})
	d := storeOf(t, l)
	p.set(mutes)
	p.cut()
	testkit.Until(t, "the place is that of a connection that has gone mute", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := l.TryLock(ctx, "mute"); err == nil {
			t.Fatal("granted")
		}
		_, muted := p.count()
		return muted > 0 && constructing(d.pool) > 0
	})
	p.set(passes)
	testkit.Within(t, 5*time.Second, func() {
		testkit.Until(t, "the place has come back", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			lock, err := l.TryLock(ctx, "x")
			if err == nil {
				err = lock.Unlock(t.Context())
			}
			return err == nil
		})
	})
}
