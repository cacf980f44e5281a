package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/zklock/internal/wire"
)

// TestShortDefaultTakesLong: a Locker for short locks takes longer ones, as MaxTTL
// says. It closes their session when they have not been used for long.
func TestShortDefaultTakesLong(t *testing.T) {
	t.Parallel()
	w, prefix := newProxy(t), freshPrefix()
	l, err := Open(t.Context(), server(t).URLVia(w.addr)+prefix+"?tick_time=200ms&ttl=2s", nil)
	testkit.Must(t, err)
	defer l.Close()
	if got := l.Capabilities().MaxTTL; got != longestTTL(120*time.Second, tick) {
		t.Errorf("TTLs up to %v, which are not those of the longest session that the servers grant", got)
	}
	for _, ttl := range []time.Duration{3 * time.Second, 20 * time.Second} {
		before := time.Now()
		held := lock(t, l, "x", distlock.TTL(ttl))
		if end := held.Deadline(); end.Before(before.Add(ttl*9/10)) || end.After(time.Now().Add(ttl)) {
			t.Errorf("a lock with TTL %v ends in %v", ttl, end.Sub(before))
		}
		unlock(t, held)
	}
}

// openDriver opens a driver without a Client.
func openDriver(t *testing.T, url string) *store {
	t.Helper()
	d, err := parse(url, nil)
	testkit.Must(t, err)
	testkit.Must(t, d.open(t.Context()))
	t.Cleanup(func() {
		if d.life.Err() == nil {
			d.Close()
		}
	})
	return d
}

// TestSessionsAreFew: sessions are opened when they are needed and closed when they
// have not been used for long, but the Locker's own.
func TestSessionsAreFew(t *testing.T) {
	t.Parallel()
	d := openDriver(t, server(t).URL()+freshPrefix()+"?tick_time=200ms&ttl=10s")
	d.idleTime = 100 * time.Millisecond
	open := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		n := 0
		for _, c := range d.classes {
			c.mu.Lock()
			if c.session != nil {
				n++
			}
			c.mu.Unlock()
		}
		return n
	}
	eventually(t, func() string {
		if n := open(); n != 1 {
			return fmt.Sprintf("%d sessions after Open", n)
		}
		return ""
	})
	asked := make(map[*class]bool)
	for ttl := time.Millisecond; ttl <= d.caps.MaxTTL; ttl += ttl/50 + 1 {
		s := d.classFor(ttl)
		asked[s] = true
		if ask := s.ask; ask > ttl*5/2+tick*3/4+time.Millisecond && ask > 2*tick {
			t.Errorf("for the TTL %v, a session of %v is asked for", ttl, ask)
		}
		if most := longestTTL(s.ask, tickOf(tick, s.ask)); ttl > most && s.ask > 2*tick {
			t.Errorf("the TTL %v has a session of %v, which allows %v", ttl, s.ask, most)
		}
	}
	if len(asked) > 40 {
		t.Errorf("%d sessions for all TTLs", len(asked))
	}
	for _, ttl := range []time.Duration{time.Second, 10 * time.Second, 60 * time.Second} {
		c := d.Claim(driver.Request{Name: "x", Owner: testkit.Owner(), TTL: ttl}).(*claim)
		grants(t, c)
		time.Sleep(2 * d.idleTime) // not to wait for something: it is in use
		if n := open(); (n == 1) != (ttl == 10*time.Second) {
			t.Errorf("%d sessions while a lock of TTL %v is held", n, ttl)
		}
		testkit.Until(t, "the lock is released", func() bool { return c.Release(t.Context()) == nil })
		eventually(t, func() string {
			if n := open(); n != 1 {
				return fmt.Sprintf("%d sessions when all locks are free", n)
			}
			return ""
		})
	}
}

// TestSessionsByDefault: how many sessions a Locker may have on servers with default
// settings. They grant 4 s to 40 s.
func TestSessionsByDefault(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{100 * time.Millisecond, 2 * time.Second, 10 * time.Second, 30 * time.Second} {
		d := newStore(Options{})
		d.target, d.longest = &wire.Target{}, 40*time.Second
		longest := longestTTL(d.longest, defaultTick)
		d.ttl = min(ttl, longest)
		granted := min(max(sessionOf(ttl, defaultTick), 4*time.Second), d.longest)
		d.main, d.mainTTL = d.classOf(granted), longestTTL(granted, tickOf(0, granted))
		sessions := make(map[*class]bool)
		for ttl := time.Millisecond; ttl <= longest; ttl += ttl/100 + 1 {
			sessions[d.classFor(ttl)] = true
		}
		if n := len(sessions); n > 17 {
			t.Errorf("%d sessions of a Locker for %v", n, ttl)
		}
	}
}

// TestExtendBeyondTheSession: a renewed lock gets what its session can give. A fixed
// term is refused what it cannot have.
func TestExtendBeyondTheSession(t *testing.T) {
	t.Parallel()
	l, err := Open(t.Context(), server(t).URL()+freshPrefix()+"?tick_time=200ms&ttl=30s", nil)
	testkit.Must(t, err)
	defer l.Close()
	const ttl = 10 * time.Second
	held, fixed := lock(t, l, "x", distlock.TTL(ttl)), lock(t, l, "y", distlock.TTL(ttl), distlock.NoRenewal())
	before := time.Now()
	testkit.Should(t, held.Extend(t.Context(), 10*ttl))
	if end := held.Deadline(); end.Before(before.Add(ttl*19/20)) || end.After(time.Now().Add(3*ttl)) {
		t.Errorf("the extended lock ends in %v", end.Sub(before))
	}
	testkit.Should(t, fixed.Extend(t.Context(), ttl))
	if err := fixed.Extend(t.Context(), 10*ttl); !errors.Is(err, distlock.ErrInvalid) {
		t.Errorf("a fixed term of %v was extended to ten: %v", ttl, err)
	}
	unlock(t, held)
	unlock(t, fixed)
}

// TestClosedIsForgotten: nothing keeps a closed Locker in memory, such as a timer of a session without users. Each session
// has a buffer of 1.5 MiB.
func TestClosedIsForgotten(t *testing.T) {
	t.Parallel()
	var store weak.Pointer[store]
	var conns []weak.Pointer[zk.Conn]
	func() {
		d, err := parse(server(t).URL()+freshPrefix()+"?tick_time=200ms&ttl=2s", nil)
		testkit.Must(t, err)
		d.idleTime = 24 * time.Hour
		testkit.Must(t, d.open(t.Context()))
		first, last := d.classFor(10*time.Second), d.classFor(60*time.Second)
		for _, c := range []*class{d.main, first, last} {
			s, err := c.use(t.Context(), 0)
			testkit.Must(t, err)
			conns = append(conns, weak.Make(s.conn.Conn))
		}
		first.leave(0)
		testkit.Must(t, d.Close())
		last.leave(0)
		store = weak.Make(d)
	}()
	testkit.Until(t, "the store is forgotten", func() bool { runtime.GC(); return store.Value() == nil })
	for i := range conns {
		testkit.Until(t, "the session is forgotten", func() bool { runtime.GC(); return conns[i].Value() == nil })
	}
}

// TestCloseWaitsForIdle: a session is being closed for want of use, and the server does not answer that. Close returns when
// nothing of it runs any more.
func TestCloseWaitsForIdle(t *testing.T) {
	t.Parallel()
	w := newProxy(t)
	d := openDriver(t, server(t).URL()+freshPrefix()+"?tick_time=200ms&ttl=2s")
	d.target.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) { // of sessions from now on
		return new(net.Dialer).DialContext(ctx, network, w.addr)
	}
	c := d.classFor(20 * time.Second)
	s, err := c.use(t.Context(), 0)
	testkit.Must(t, err)
	c.leave(0)
	asked, answer := make(chan struct{}), make(chan struct{})
	defer close(answer)
	w.before(opClose, func() { close(asked); <-answer })
	c.closeIdle()
	<-asked
	testkit.Must(t, d.Close())
	if state := s.conn.State(); state != zk.StateDisconnected {
		t.Error("the Locker was closed, and the connection was", state)
	}
}

// TestOpenedForNobody: a session that is opened when its only user has left is closed like any other that is not used.
func TestOpenedForNobody(t *testing.T) {
	t.Parallel()
	d := openDriver(t, server(t).URL()+freshPrefix()+"?tick_time=200ms&ttl=2s")
	d.idleTime = 100 * time.Millisecond
	c := d.classFor(20 * time.Second)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	_ = c.open(ctx) // an error, or the session was faster
	testkit.Until(t, "the session is closed", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.session == nil
	})
}

// TestOneLogin: the library sends again, with each connection, all credentials that it was given. It is given them once,
// also where the connection breaks after that.
func TestOneLogin(t *testing.T) {
	t.Parallel()
	w := newProxy(t)
	w.on(once(opExists, 1, loseReply))
	d := openDriver(t, strings.Replace(server(t).URLVia(w.addr), "zk://", "zk://me:s3cret@", 1)+freshPrefix()+"?tick_time=200ms&ttl=10s&session_timeout=20s")
	w.count()
	w.cut()
	testkit.Until(t, "the connection is back", func() bool {
		_, _, err := d.main.session.conn.Exists("/")
		return err == nil
	})
	if n := w.count()[opAuth]; n != 1 {
		t.Errorf("%d logins of one connection", n)
	}
}
