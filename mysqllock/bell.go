package mysqllock

import (
	"context"
	"crypto/sha256"
	"database/sql"
	sqldriver "database/sql/driver"
	"strings"
	"sync"
	"time"
)

// A table has no way to tell a waiter that a name is free; named locks (GET_LOCK) do.
// The bell of a name is such a lock. Whoever holds the name has its bell too, as far
// as possible, and lets go of it after the release. Who waits for the name waits for
// the bell, in the server, first come, first served, and then tries.
//
// The row stays the truth, and nothing rests on the bell but speed and order: a
// waiter that gets the bell and finds the name held polls, and one that does not get
// it tries all the same as often as the portable half says. So it does no harm that
// a bell is lost with its connection, that a frozen process keeps one, that each
// server of a cluster has its own, or that a proxy refuses them.
//
// A bell belongs to a connection, and a connection can wait for one only. So each
// claim that waits for a bell, or has got one by waiting, has a connection for that
// time, up to a limit, beyond which claims poll. They are not out of the pool that
// serves the requests. A claim that takes its name at once, as most do, costs no
// connection and no request: only if it still holds the name after bellDelay is its
// bell taken, together with those of others, on one connection for all of them. Who
// waits for it polls until then.
//
// Where holds are short and many want the name, that is too late, and the next in
// line would find that somebody who has just come was faster, a holder that comes back
// at once most of all. So the row says when somebody last had to wait, and a name for
// which that is less than a second ago is left, when it is free, to those who come with
// its bell; free.sql does so. As long as bells pass from one to the next, nobody else
// gets in, and the server passes them on in the order in which they were asked for.
type bells struct {
	db    *sql.DB
	sql   *statements
	slots chan struct{} // one element per claim that has a connection

	mu      sync.Mutex
	pending []*claim             // have taken their names without the bell, in this order
	running bool                 // a goroutine takes the bells of the pending
	taken   int                  // bells that shared has
	stuck   map[string]time.Time // names whose bells are of no use, and until when
	closed  bool
	quit    chan struct{}
	idle    sync.WaitGroup // that goroutine

	line   sync.Mutex // held for a request on shared, which carries one at a time
	shared *sql.Conn  // has the bells of claims that took their names at once; nil if there is no need
}

const (
	// bellDelay is how long a claim holds its name before its bell is taken: shorter
	// holds cost nothing more. After bellTaken that has been done, or is not to be:
	// who waits for the name stops polling, and waits for the bell.
	bellDelay = 10 * time.Millisecond
	bellTaken = 3 * bellDelay

	// maxYields is how often a waiter gives back the bell of a holder who may be about
	// to take it, having been slower than expected, before it keeps it for good.
	maxYields = 5

	// maxBells is how many bells one connection takes, bellBatch how many at once.
	maxBells  = 1000
	bellBatch = 200

	// A waiter that is not rung for looks after minPoll, and ever more seldom.
	minPoll = 5 * time.Millisecond
	maxPoll = 100 * time.Millisecond

	// distrust is for how long a bell is not waited for that somebody keeps who
	// does not hold the name: a process that was frozen, or a machine that went
	// away without a word, whose connection the server may keep for hours.
	distrust = time.Minute

	// bellTimeout bounds a request about bells that does not wait for one. It is
	// dropped with its connection then, and with that the bells.
	bellTimeout = 2 * time.Second
)

// newBells returns the bells of a table. At most limit claims wait at a time, and
// fewer if the pool does not have that many connections and one more.
func newBells(db *sql.DB, s *statements, limit int) *bells {
	if open := db.Stats().MaxOpenConnections; open > 0 {
		limit = min(limit, open-1)
	}
	return &bells{db: db, sql: s, slots: make(chan struct{}, limit), stuck: make(map[string]time.Time), quit: make(chan struct{})}
}

// close waits for the goroutine. All claims have been released, and with them their
// connections, but for those whose release has never returned: their bells end with the
// shared connection, which may belong to a pool that lives on.
func (b *bells) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	close(b.quit)
	b.idle.Wait()
	b.line.Lock()
	defer b.line.Unlock()
	if b.shared != nil {
		discard(b.shared)
		b.shared = nil
	}
}

// name returns the values for the statements about the bell of a name. Names of
// locks are cut to what a named lock allows; two that meet wake each other in vain.
func (b *bells) name(lock string) values {
	// All tables of a server share its named locks. The table may be given with
	// its schema or without.
	table := b.sql.table[strings.LastIndexByte(b.sql.table, '.')+1:]
	sum := sha256.Sum256([]byte(b.sql.schema + "." + table + "\x00" + lock))
	return values{bell: hexOf("distlock:" + hexOf(string(sum[:20])))}
}

// discard closes a connection for good, and with it what it has on the server.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close()
}

// ringing says what bells does about a claim that came without its bell.
type ringing int

const (
	notRinging ringing = iota
	ringsLater         // pending
	rings              // its bell is taken
)

// later has the bell of a claim taken if that still holds its name after bellDelay.
func (b *bells) later(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || c.ringing != notRinging {
		return
	}
	c.ringing, c.granted = ringsLater, time.Now()
	b.pending = append(b.pending, c)
	if !b.running {
		b.running = true
		b.idle.Go(b.run)
	}
}

// run takes bells until nothing is pending.
func (b *bells) run() {
	for {
		batch, pause := b.due()
		switch {
		case len(batch) > 0:
			b.take(batch)
		case pause < 0:
			b.hangUp()
			return
		default:
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-b.quit:
				timer.Stop()
				return
			}
		}
	}
}

// due removes from the pending what has been released, and returns those whose time
// has come, or how long that will take; less than 0 if there are none.
func (b *bells) due() (batch []*claim, pause time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.pending) > 0 {
		c := b.pending[0]
		if c.ringing == ringsLater && b.taken+len(batch) < maxBells {
			if pause = bellDelay - time.Since(c.granted); pause > 0 || len(batch) == bellBatch {
				return batch, pause
			}
			batch = append(batch, c)
		}
		b.pending[0] = nil
		b.pending = b.pending[1:]
	}
	b.running = len(batch) > 0
	return batch, -1
}

// take takes the bells of a batch, as far as nobody else has them. If it fails, they
// are not rung for, and whoever waits for them polls.
func (b *bells) take(batch []*claim) {
	var parts []string
	for _, c := range batch {
		parts = append(parts, b.sql.fill("take-bell", b.name(c.request.Name)))
	}
	var taken string
	if !b.send(true, func(ctx context.Context, conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, "SELECT CONCAT("+strings.Join(parts, ", ")+")").Scan(&taken)
	}) {
		return
	}
	for i, c := range batch {
		if taken[i] != '1' {
			continue
		}
		b.mu.Lock()
		b.taken++
		released := c.ringing != ringsLater
		c.ringing = rings
		b.mu.Unlock()
		if released {
			b.ring(c)
		}
	}
}

// ring lets go of the bell of a claim that later was called for. It has no effect
// on other claims, and is called when c has been released.
func (b *bells) ring(c *claim) {
	b.mu.Lock()
	was := c.ringing
	c.ringing = notRinging
	if was == rings {
		b.taken--
	}
	b.mu.Unlock()
	if was != rings {
		return
	}
	b.send(false, func(ctx context.Context, conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, b.sql.fill("ring-bell", b.name(c.request.Name)))
		return err
	})
	b.hangUp()
}

// send makes a request on the shared connection, and drops that if it fails. If there
// is none it opens one only where dial says so: what it had has been let go of.
func (b *bells) send(dial bool, f func(context.Context, *sql.Conn) error) bool {
	b.line.Lock()
	defer b.line.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), bellTimeout)
	defer cancel()
	if b.shared == nil && dial {
		b.shared, _ = b.db.Conn(ctx)
	}
	if b.shared == nil {
		return false
	}
	if f(ctx, b.shared) != nil {
		discard(b.shared)
		b.shared = nil
	}
	return b.shared != nil
}

// hangUp gives the shared connection back to its pool if nothing is left to do.
func (b *bells) hangUp() {
	b.line.Lock()
	defer b.line.Unlock()
	b.mu.Lock()
	busy := b.taken > 0 || b.running
	b.mu.Unlock()
	if !busy && b.shared != nil {
		_ = b.shared.Close()
		b.shared = nil
	}
}

// suspect has the bell of a name passed by for a while.
func (b *bells) suspect(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, until := range b.stuck {
		if time.Now().After(until) {
			delete(b.stuck, n)
		}
	}
	b.stuck[name] = time.Now().Add(distrust)
}

// trust ends that: the bell has come. It may have come late to a process that was
// stopped, and which then found the name free before it saw the bell.
func (b *bells) trust(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.stuck, name)
}

func (b *bells) suspects(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Before(b.stuck[name])
}
