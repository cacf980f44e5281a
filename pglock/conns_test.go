package pglock

import (
	"bytes"
	"context"
	"errors"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A request that hangs keeps no place in the pool, also while the library takes its leave of the server: who comes next
// has a connection at once, and Close does not wait for it either.
func TestPlaceOfHungRequest(t *testing.T) {
	t.Parallel()
	s := server(t)
	link, err := netfault.NewTCPProxy(s.Addr(), 1)
	testkit.Must(t, err)
	defer link.Close()
	l, err := Open(t.Context(), strings.Replace(s.URL(), s.Addr(), link.Addr(), 1), &Options{Table: table(t), MaxConns: 1})
	testkit.Must(t, err)
	testkit.Until(t, "nothing is dialled for renewals", func() bool { return constructing(storeOf(t, l).renewals) == 0 })
	testkit.Within(t, 5*time.Second, func() {
		fired := link.Fired()
		link.DropRequest(1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		hung := make(chan error, 1)
		go func() {
			_, err := l.TryLock(ctx, "hangs")
			hung <- err
		}()
		testkit.Until(t, "a request hangs", func() bool { return link.Fired() > fired })
		cancel()
		if err := <-hung; err == nil {
			t.Fatal("a request without an answer has succeeded")
		}
		lock, err := l.TryLock(t.Context(), "x")
		testkit.Must(t, err)
		testkit.Should(t, lock.Unlock(t.Context()))
	})
	testkit.Within(t, 5*time.Second, func() {
		testkit.Should(t, l.Close())
	})
}

// The first renewal has a connection as soon as Open has returned, also where the dial for it has taken longer than Open else.
func TestRenewalConnectionStands(t *testing.T) {
	t.Parallel()
	config, opts, err := parseURL(server(t).URL(), Options{Table: table(t)})
	testkit.Must(t, err)
	dial := config.ConnConfig.DialFunc
	var dialled atomic.Pointer[context.Context]
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if end, ok := ctx.Deadline(); ok && time.Until(end) <= renewDial {
			dialled.Store(&ctx)
			<-time.After(renewDial / 4)
		}
		return dial(ctx, network, addr)
	}
	l, err := openOwn(t.Context(), config, opts)
	testkit.Must(t, err)
	defer l.Close()
	if storeOf(t, l).renewals.Stat().IdleConns() == 0 {
		if errors.Is((*dialled.Load()).Err(), context.DeadlineExceeded) {
			t.Fatal("inconclusive: the machine was late: the dial had a second, and Open waits for no longer")
		}
		t.Error("Open has returned, and the first renewal would have to dial")
	}
}

// Renewals have connections of their own, also when the first of them was lost, and a dial for another takes longer than one
// may: they need none of a pool that is busy.
func TestRenewalConnections(t *testing.T) {
	t.Parallel()
	config, opts, err := parseURL(server(t).URL(), Options{Table: table(t), MaxConns: 1})
	testkit.Must(t, err)
	var hangs atomic.Bool
	var late atomic.Int32 // dials that have hung, or were late as the machine was
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		context.AfterFunc(ctx, func() {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				late.Add(1)
			}
		})
		if hangs.CompareAndSwap(true, false) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return dial(ctx, network, addr)
	}
	l, err := openOwn(t.Context(), config, opts)
	testkit.Must(t, err)
	defer l.Close()
	d := storeOf(t, l)
	lock, err := l.TryLock(t.Context(), "x")
	testkit.Must(t, err)
	busy, err := d.pool.Acquire(t.Context())
	testkit.Must(t, err)
	defer busy.Release()
	extend := func() {
		testkit.Until(t, "Extend has a connection", func() bool {
			before := late.Load()
			err := lock.Extend(t.Context(), time.Minute)
			if err != nil && late.Load()-before < 2 {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	extend()
	lost, err := d.renewals.Acquire(t.Context())
	testkit.Must(t, err)
	_ = lost.Conn().Close(t.Context())
	hangs.Store(true)
	lost.Release()
	extend()
	if hangs.Load() {
		t.Error("no dial has hung, so this test shows nothing")
	}
}

// mute is a connection to nowhere as soon as it is told so: what is sent is lost, and nothing comes.
type mute struct {
	net.Conn
	told  *atomic.Bool
	pings *atomic.Int64
}

func (m *mute) Write(b []byte) (int, error) {
	if m.told.Load() {
		if bytes.Contains(b, []byte("-- ping")) {
			m.pings.Add(1)
		}
		return len(b), nil
	}
	return m.Conn.Write(b)
}

// If an idle connection says nothing, those beside it are not asked one after the other: each would take a second.
func TestMuteConnections(t *testing.T) {
	t.Parallel()
	config, opts, err := parseURL(server(t).URL(), Options{Table: table(t), MaxConns: 4})
	testkit.Must(t, err)
	var told, later atomic.Bool
	var pings atomic.Int64
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil && !later.Load() {
			conn = &mute{conn, &told, &pings}
		}
		return conn, err
	}
	l, err := openOwn(t.Context(), config, opts)
	testkit.Must(t, err)
	defer l.Close()
	pool := storeOf(t, l).pool
	var conns []*pgxpool.Conn
	for range 4 {
		conns = append(conns, value[*pgxpool.Conn](t)(pool.Acquire(t.Context())))
	}
	for _, conn := range conns {
		conn.Release()
	}
	later.Store(true)
	told.Store(true)
	conn := value[*pgxpool.Conn](t)(pool.Acquire(context.WithValue(t.Context(), probed{}, true)))
	defer conn.Release()
	testkit.Should(t, conn.Ping(t.Context()))
	if n := pings.Load(); n != 1 {
		t.Errorf("%d connections were asked one after the other, want 1", n)
	}
}

// What the rest of the program keeps from a Locker is told as that, and not as the server's silence.
func TestBusyPool(t *testing.T) {
	t.Parallel()
	pool := poolLike(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	l := locker(t, pool, table(t))
	lock, err := l.TryLock(t.Context(), "held", distlock.TTL(time.Hour))
	testkit.Must(t, err)
	busy, err := pool.Acquire(t.Context())
	testkit.Must(t, err)
	defer busy.Release()
	// The wait that is told is the whole, not that of a second attempt after the end.
	told := regexp.MustCompile(`no answer from the pool of connections \(all 1 are in use\) within \d+(ms|\.\d+s)`)
	for what, call := range map[string]func(context.Context) error{
		"TryLock": func(ctx context.Context) error { _, err := l.TryLock(ctx, "x"); return err },
		"Extend":  func(ctx context.Context) error { return lock.Extend(ctx, time.Hour) },
		"Inspect": func(ctx context.Context) error { _, err := distlock.Inspect(ctx, l, "x"); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || !told.MatchString(err.Error()) {
			t.Errorf("%s on a pool that is in use: %v", what, err)
		}
		cancel()
	}
	d := &store{pool: pool, renewals: pool}
	_, err = open(t.Context(), d, Options{}, 200*time.Millisecond)
	if errors.Is(err, context.DeadlineExceeded) || err == nil || !strings.Contains(err.Error(), "no answer from the pool of connections (all 1 are in use) within") {
		t.Errorf("New on a pool that is in use: %v", err)
	}
}
