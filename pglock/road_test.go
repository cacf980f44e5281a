package pglock

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// road is the way to the server, of all connections of one Locker. Of netfault's proxy it differs in that it tells a login
// from what comes after it, and in that a dial may hang.
type road struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu    sync.Mutex
	mode  mode
	stuck chan struct{} // dials that hang go on until it is closed, unless it is nil
	conns map[*roadConn]bool
	hung  int // dials that hang
	muted int // connections that have gone mute
}

// mode is what becomes of connections that are made from now on.
type mode int

const (
	passes mode = iota
	hangs       // the dial has no end of its own; see stick
	mutes       // after the login the server's answers are lost
)

// viaRoad opens a Locker that has a road of its own to the server. The parameters are of the URL.
func viaRoad(t *testing.T, params url.Values, opts Options) (*Locker, *road) {
	t.Helper()
	u := value[*url.URL](t)(url.Parse(server(t).URL()))
	u.RawQuery = params.Encode()
	config, opts, err := parseURL(u.String(), opts)
	testkit.Must(t, err)
	p := &road{dial: config.ConnConfig.DialFunc, conns: make(map[*roadConn]bool)}
	config.ConnConfig.DialFunc = p.connect
	config.PingTimeout = time.Minute // so long a dead connection of the pool is waited for
	var l *Locker
	testkit.Until(t, "it is open", func() bool { // dial_timeout may be short
		if l, err = openOwn(t.Context(), config.Copy(), opts); err != nil {
			t.Log(err)
		}
		return err == nil
	})
	t.Cleanup(func() {
		p.set(passes)
		p.cut() // what is mute
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
	m, stuck := p.mode, p.stuck
	if m == hangs {
		p.hung++
		p.mu.Unlock()
		<-ctx.Done()
		if stuck != nil {
			<-stuck
		}
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

// A server that goes mute just after a login keeps no place in the pool for longer than dial_timeout: the next caller is served.
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

// hang has all places of the renewals taken by dials that hang, and the road to the server back.
func hang(t *testing.T, d *store, p *road) {
	t.Helper()
	p.set(hangs)
	testkit.Until(t, "all places of the renewals are those of dials that hang", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if conn, err := d.renewals.Acquire(ctx); err == nil {
			_ = conn.Conn().Close(t.Context())
			conn.Release()
		}
		return constructing(d.renewals) == renewConns
	})
	p.set(passes)
}

// stick has dials that hang from now on go on until end is called.
func (p *road) stick() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stuck := make(chan struct{})
	p.stuck = stuck
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stuck = nil
		close(stuck)
	})
}

// Dials that hang keep no lock from being renewed once the road is back: there is the pool, and the places come back, both
// long before dial_timeout.
func TestRenewalWhileDialsHang(t *testing.T) {
	t.Parallel()
	l, p := viaRoad(t, url.Values{"dial_timeout": {"1m"}}, Options{Table: table(t), MaxConns: 1})
	d := storeOf(t, l)
	lock := value[distlock.Lock](t)(l.TryLock(t.Context(), "x", distlock.TTL(time.Hour), distlock.NoRenewal()))
	extends := func() { testkit.Must(t, lock.Extend(t.Context(), time.Hour)) }
	testkit.Until(t, "the pool has a connection", func() bool { return d.pool.Stat().IdleConns() == 1 })
	end := p.stick()
	defer end()
	hang(t, d, p)
	extends() // while all these dials hang
	end()
	busy := value[*pgxpool.Conn](t)(d.pool.Acquire(t.Context()))
	defer busy.Release()
	testkit.WithinFresh(t, 4*renewDial, func() func() {
		hang(t, d, p)
		return extends
	})
}

// Connections of the pool that are dead, and were used just now, keep no lock from being renewed: a new one comes sooner.
func TestRenewalWhilePoolIsDead(t *testing.T) {
	t.Parallel()
	l, p := viaRoad(t, nil, Options{Table: table(t), MaxConns: 4})
	d := storeOf(t, l)
	lock := value[distlock.Lock](t)(l.TryLock(t.Context(), "x", distlock.TTL(time.Hour), distlock.NoRenewal()))
	dies := func() { // the renewals have no connection, and the pool has dead ones
		d.pool.Reset()
		testkit.Until(t, "the renewals have no connection, and the pool has", func() bool {
			d.renewals.Reset() // an Extend before may have made several
			all := make([]*pgxpool.Conn, 4)
			for i := range all {
				all[i] = value[*pgxpool.Conn](t)(d.pool.Acquire(t.Context()))
			}
			for _, conn := range all {
				conn.Release()
			}
			return d.renewals.Stat().IdleConns() == 0 && d.pool.Stat().IdleConns() == 4
		})
		p.mute()
	}
	// Again, because a machine that is late may not connect in renewDial. The pool waits for a minute for a dead one.
	testkit.Until(t, "a new connection comes sooner", func() bool {
		dies()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return lock.Extend(ctx, time.Hour) == nil
	})
}

// A listener's connection that a silent server has is gone at once, with all that the library has begun for it.
func TestListenerHangsUp(t *testing.T) {
	t.Parallel()
	l, p := viaRoad(t, nil, Options{Table: table(t)})
	d := storeOf(t, l)
	testkit.WithinFresh(t, 5*time.Second, func() func() {
		p.set(passes)
		conn := value[*pgx.Conn](t)(d.listener.connect())
		p.mute()
		p.set(hangs)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := conn.Ping(ctx); err == nil {
			t.Fatal("a mute server has answered")
		}
		return func() {
			hangUp(conn)
			<-conn.PgConn().CleanupDone()
		}
	})
}
