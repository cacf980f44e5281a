package pglock

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/turns"
)

// Renew implements driver.Driver. The statement for many passes over locked rows; what it has
// not renewed is renewed alone, side by side: each of these statements waits for its row, and
// says whether the lock is lost.
func (d *store) Renew(ctx context.Context, batch []driver.Renewal) {
	var names, owners [][]byte
	var since, ttls []int64
	for _, r := range batch {
		c := r.Claim.(*claim)
		names, owners = append(names, c.name()), append(owners, c.owner)
		since, ttls = append(since, c.since), append(ttls, roundUp(r.TTL).Microseconds())
	}
	renewed := make([]bool, len(batch))
	err := d.sendRenewal(ctx, func() query {
		clear(renewed) // of an attempt before, if its COMMIT was refused
		return query{d.text["renew"], []any{names, owners, since, ttls}, func(row pgx.Rows) error {
			var place int
			err := row.Scan(&place)
			if err == nil && place >= 1 && place <= len(renewed) {
				renewed[place-1] = true
			}
			return err
		}}
	})
	for i := range batch {
		if err != nil || renewed[i] {
			batch[i].Answer(driver.Grant{TTL: roundUp(batch[i].TTL)}, err)
		}
	}
	driver.RenewEach(ctx, batch, d.renewAlone)
}

// sendRenewal sends over a connection that renewals have to themselves, so that no lock is lost because everything else
// keeps those of the pool busy. Where none is to be had, because the server has none left or takes long, it sends over whichever
// comes first then. It calls begin for each attempt: nothing of one that was undone may count.
func (d *store) sendRenewal(ctx context.Context, begin func() query) error {
	err := d.sendOn(ctx, d.lend, committed(begin())...)
	if fate := driver.FateOf(err); ctx.Err() == nil && (fate == driver.NotSent || fate == driver.NotNow) {
		err = d.sendOn(ctx, d.lendEither, committed(begin())...)
	}
	return err
}

// awaitRenewals waits for the first connection of renewals, which is dialled since connect. A dial takes up to seven round
// trips: a short lease over a long way is over before. A server that has no connection left for renewals is no error of
// Open: the pool has those that the other requests use.
func (d *store) awaitRenewals(ctx context.Context) {
	if !d.own {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, renewDial)
	defer cancel()
	if conn, err := d.renewals.Acquire(ctx); err == nil {
		conn.Release()
	}
}

// probed marks the context of an Acquire that asks any connection first whether it lives.
type probed struct{}

// lend returns a connection for a renewal: one of the renewals' own that stands, else whichever comes first, a new one of
// these or one of the pool that stands and has answered. Where none of the pool stands, none is made there for it as long as
// there may be one here: it might hang, and take a place from the claims.
func (d *store) lend(ctx context.Context) (*pgxpool.Conn, error) {
	if d.renewals.Stat().IdleConns() > 0 || d.pool.Stat().IdleConns() == 0 {
		return d.renewals.Acquire(ctx)
	}
	return d.lendEither(ctx)
}

// lendEither returns whichever connection comes first, one of the renewals' own or one of the pool that has answered.
//
// Neither alone will do. New ones may hang: dials that were begun during a fault of the network fill the pool. Those of
// the pool may all be dead, or busy for long: to ask one takes pingTimeout, and a new one comes sooner. What comes second
// goes back to its pool.
func (d *store) lendEither(ctx context.Context) (*pgxpool.Conn, error) {
	if !d.own {
		return d.pool.Acquire(ctx)
	}
	type result struct {
		conn *pgxpool.Conn
		err  error
	}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, probed{}, true))
	defer cancel()
	results := make(chan result, 2)
	for _, pool := range []*pgxpool.Pool{d.renewals, d.pool} {
		go func() {
			conn, err := pool.Acquire(ctx)
			results <- result{conn, err}
		}()
	}
	r := <-results
	if r.err != nil {
		r = <-results
		return r.conn, r.err
	}
	go func() {
		if second := <-results; second.err == nil {
			second.conn.Release()
		}
	}()
	return r.conn, nil
}

// committed has a renewal see what is committed when it begins, whatever isolation the sessions have by default: with a
// stricter one, a conflict over one row would fail all of a batch.
func committed(q query) []query {
	return []query{{"BEGIN ISOLATION LEVEL READ COMMITTED", nil, nothing}, q, {"COMMIT", nil, nothing}}
}

// renewAlone uses the pool: locks on stuck rows must not keep the others' from being renewed.
func (d *store) renewAlone(ctx context.Context, claimed driver.Claim, ttl time.Duration) (driver.Grant, error) {
	c, held := claimed.(*claim), false
	ttl = roundUp(ttl)
	err := d.sendAbout(ctx, c.request.Name, turns.Renewing, committed(query{d.text["renew-alone"], []any{c.name(), c.owner, c.since, ttl.Microseconds()},
		func(row pgx.Rows) error { return row.Scan(&held) }})...)
	if err == nil && !held {
		err = distlock.ErrLost
	}
	return driver.Grant{TTL: ttl}, err
}
