package pglock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock/driver"
)

const (
	listenTimeout = 10 * time.Second // to have a connection that listens
	quiet         = 15 * time.Second // without a message, after which it is asked for an answer
	alive         = 5 * time.Second  // for the answer
)

// channelPrefix is before the id of a listener in the name of its channel. Each has its own: a release wakes the process that has the
// next waiter, and not all that wait. If two have the same id by chance, each hears a little more.
const channelPrefix = "distlock_"

// listener has the one connection that hears of releases, from when a claim first waits.
//
//	waiter    join, then held.sql: on the list       Wait
//	holder                              release.sql: off the list, and NOTIFY
//	listener                                                 wakes the waiter
//
// The row is the truth, and a notification a hint. While there is no connection, join says so, and
// the engine polls; when one comes or goes, all look again.
type listener struct {
	pool *pgxpool.Pool
	own  bool    // the pool was opened here
	id   [4]byte // what the owners of this Locker begin with

	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup
	start   sync.Once

	mu      sync.Mutex
	live    bool
	since   time.Time          // when that changed
	drop    context.CancelFunc // the present connection
	waiting map[string]*claim  // by owner
}

func newListener(pool *pgxpool.Pool, own bool) *listener {
	l := &listener{pool: pool, own: own, waiting: make(map[string]*claim)}
	_, _ = rand.Read(l.id[:]) // it never fails
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// join has a claim woken by what is told to it, until leave, and reports whether a connection
// listens. A wake-up of before is forgotten: what comes next is a look.
func (l *listener) join(c *claim) (live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-c.woken:
	default:
	}
	c.told, c.heard = c.told || c.heard, false
	l.waiting[string(c.owner)] = c
	return l.live
}

// begin has a connection made, if there was none yet.
func (l *listener) begin() { l.start.Do(func() { l.running.Go(l.run) }) }

// leave undoes join. Where waiters poll, there is no listener.
func (l *listener) leave(c *claim) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, string(c.owner))
	c.heard = false
}

// hear tells the claim that a notification names; or has all look, where a handler of the user's pool, OnNotification, has
// taken that.
func (l *listener) hear(n *pgconn.Notification) {
	if n == nil {
		l.wakeAll()
		return
	}
	owner, _ := hex.DecodeString(n.Payload) // nobody is woken by what others may send
	l.tell(string(owner))
}

// tell wakes the claim of an owner.
func (l *listener) tell(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.waiting[owner]; c != nil {
		c.heard = true
		c.wake()
	}
}

// set notes whether a connection listens, and has all claims look: those that would be told of releases, and those that polled.
func (l *listener) set(live bool, drop context.CancelFunc) {
	l.mu.Lock()
	l.live, l.since, l.drop = live, time.Now(), drop
	l.mu.Unlock()
	l.wakeAll()
}

// wakeAll has all claims look. None of them was told.
func (l *listener) wakeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.waiting {
		c.wake()
	}
}

// moved has another connection made: the server is no more the one that takes writes. One that was made just now stays: where
// every request is refused as read-only, each would have one made.
func (l *listener) moved() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live && time.Since(l.since) > alive {
		l.drop()
	}
}

func (c *claim) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// run keeps a connection until close.
func (l *listener) run() {
	for retry := (driver.Retry{}); l.ctx.Err() == nil; {
		conn, err := l.connect()
		if err != nil {
			_ = retry.Pause(l.ctx)
			continue
		}
		retry = driver.Retry{}
		ctx, cancel := context.WithCancel(l.ctx)
		l.set(true, cancel)
		l.listen(ctx, conn)
		l.set(false, cancel)
		cancel()
		hangUp(conn)
	}
}

// connect returns a connection that listens. One of ours is not taken from those that the claims need at that moment;
// another pool may have hooks, so it is taken out of that.
func (l *listener) connect() (conn *pgx.Conn, err error) {
	ctx, cancel := context.WithTimeout(l.ctx, listenTimeout)
	defer cancel()
	if l.own {
		config := l.pool.Config().ConnConfig
		cancelNothing(config)
		conn, err = pgx.ConnectConfig(ctx, config)
	} else if pooled, acquired := l.pool.Acquire(ctx); acquired != nil {
		err = acquired
	} else {
		conn = pooled.Hijack()
	}
	if err != nil {
		return nil, err
	}
	if _, err = conn.Exec(ctx, "LISTEN "+channelPrefix+hex.EncodeToString(l.id[:])); err != nil {
		hangUp(conn)
	}
	return conn, err
}

// hangUp closes a connection that is used no more.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
	cut(conn) // if the library has closed it before
}

// listen returns when the connection is of no use any more.
func (l *listener) listen(ctx context.Context, conn *pgx.Conn) {
	for heard := error(nil); ctx.Err() == nil && heard == nil; {
		wait, cancel := context.WithTimeout(ctx, quiet)
		n, err := conn.WaitForNotification(wait)
		cancel()
		if err == nil {
			l.hear(n)
			continue
		}
		wait, cancel = context.WithTimeout(ctx, alive)
		heard = conn.Ping(wait) // what it hears meanwhile, the next wait returns
		cancel()
	}
}

func (l *listener) close() {
	l.end()
	l.running.Wait()
}
