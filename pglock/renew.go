package pglock

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/turns"
)

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

// sendRenewal sends over a connection that renewals have to themselves, so that no lock is lost because everything else
// keeps those of the pool busy; or over the pool, where the server has no connection left for them.
func (d *store) sendRenewal(ctx context.Context, q query) error {
	err := d.sendOn(ctx, d.renewals, committed(q)...)
	if fate := driver.FateOf(err); fate == driver.NotSent || fate == driver.NotNow {
		err = d.send(ctx, committed(q)...)
	}
	return err
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
	err := d.sendAbout(ctx, c.request.Name, turns.Renewing, committed(query{d.text["renew-alone"], []any{c.name(), c.owner, ttl.Microseconds()},
		func(row pgx.Rows) error { return row.Scan(&held) }})...)
	if err == nil && !held {
		err = distlock.ErrLost
	}
	return driver.Grant{TTL: ttl}, err
}
