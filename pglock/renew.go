package pglock

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// renewConns is how many connections renewals have to themselves: batches that are sent side by side
// have one each.
const renewConns = 3

// renewals have connections of their own, so that no lock is lost because everything else keeps
// those of the pool busy. A renewal never waits for one: a dial may take longer than what is left.
type renewals struct {
	config  *pgx.ConnConfig
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup // dials, and connections that are closed

	mu    sync.Mutex
	ready []ready // each is used in its turn, so none falls silent
	made  int     // ready, in use or being dialled
}

type ready struct {
	conn *pgx.Conn
	used time.Time
}

func newRenewals(config *pgx.ConnConfig) *renewals {
	// No renewal has time to prepare a statement.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	n := &renewals{config: config}
	n.ctx, n.end = context.WithCancel(context.Background())
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fill()
	return n
}

// take returns a connection, or nil if none is ready.
func (n *renewals) take() *pgx.Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.fill()
	for len(n.ready) > 0 {
		first := n.ready[0]
		n.ready = n.ready[1:]
		if time.Since(first.used) < idleTime && !first.conn.IsClosed() {
			return first.conn
		}
		n.drop(first.conn)
	}
	return nil
}

// give gives back what take has returned. One that was closed is replaced.
func (n *renewals) give(conn *pgx.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() == nil && !conn.IsClosed() {
		n.ready = append(n.ready, ready{conn, time.Now()})
		return
	}
	n.drop(conn)
	n.fill()
}

// drop closes a connection; n.mu is held.
func (n *renewals) drop(conn *pgx.Conn) {
	n.made--
	n.running.Go(func() { leave(conn) })
}

// fill has what is missing dialled, in the background; n.mu is held. What fails is tried again by
// the next renewal.
func (n *renewals) fill() {
	for ; n.made < renewConns && n.ctx.Err() == nil; n.made++ {
		n.running.Go(func() {
			conn, err := pgx.ConnectConfig(n.ctx, n.config)
			if err == nil {
				n.give(conn)
				return
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.made--
		})
	}
}

// close is called when no renewal is under way.
func (n *renewals) close() {
	n.end()
	n.mu.Lock()
	for _, r := range n.ready {
		n.drop(r.conn)
	}
	n.ready = nil
	n.mu.Unlock()
	n.running.Wait()
}

// Renew implements driver.Driver. The statement for many passes over locked rows; what it has
// not renewed is renewed alone, side by side: each of these statements waits for its row, and
// says whether the lock is lost.
func (d *store) Renew(ctx context.Context, batch []driver.Renewal) {
	var names, owners [][]byte
	var ttls []int64
	at := make(map[string]int) // by owner, the place in batch
	for i, r := range batch {
		c := r.Claim.(*claim)
		names, owners, ttls = append(names, c.name()), append(owners, c.owner), append(ttls, roundUp(r.TTL).Microseconds())
		at[string(c.owner)] = i
	}
	renewed := make([]bool, len(batch))
	err := d.sendRenewal(ctx, query{d.text["renew"], []any{names, owners, ttls}, func(row pgx.Rows) error {
		var owner []byte
		err := row.Scan(&owner)
		if i, ok := at[string(owner)]; ok && err == nil {
			renewed[i] = true
		}
		return err
	}})
	rest := 0
	for i := range batch {
		switch {
		case err != nil:
			batch[i].Answer(driver.Grant{}, err)
		case renewed[i]:
			batch[i].Answer(driver.Grant{TTL: roundUp(batch[i].TTL)}, nil)
		default:
			batch[rest], batch[i] = batch[i], batch[rest]
			rest++
		}
	}
	if rest > 0 {
		driver.RenewEach(ctx, batch[:rest], d.renewAlone)
	}
}

// sendRenewal sends over a connection of renewals, or of the pool if none of those is ready.
func (d *store) sendRenewal(ctx context.Context, q query) error {
	if d.renewals != nil {
		if conn := d.renewals.take(); conn != nil {
			defer d.renewals.give(conn)
			return exchange(ctx, conn, q)
		}
	}
	return d.send(ctx, q)
}

// renewAlone uses the pool: locks on stuck rows must not keep the others' from being renewed.
func (d *store) renewAlone(ctx context.Context, claimed driver.Claim, ttl time.Duration) (driver.Grant, error) {
	c, held := claimed.(*claim), false
	ttl = roundUp(ttl)
	err := d.send(ctx, query{d.text["renew-alone"], []any{c.name(), c.owner, ttl.Microseconds()},
		func(row pgx.Rows) error { return row.Scan(&held) }})
	if err == nil && !held {
		err = distlock.ErrLost
	}
	return driver.Grant{TTL: ttl}, err
}
