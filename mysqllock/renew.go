package mysqllock

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// renewConns is how many connections renewals have to themselves: one for batches, the others for
// locks renewed alone.
const renewConns = 3

// deadAfter is after how long without an answer to a renewal its connection is taken for dead; a short TTL has less
// time. An Extend that its caller cancels sooner says nothing of it.
const deadAfter = time.Second

// renewals have connections of their own, so that no lock is lost because everything else
// keeps those of the common pool busy.
type renewals struct {
	db     *sql.DB       // nothing else uses it, as far as possible
	common *sql.DB       // serves where db cannot connect
	alone  chan struct{} // one element per lock that is renewed alone
	skip   bool          // the server can skip rows that are locked

	connecting sync.Mutex     // held while a connection is made in the background
	idle       sync.WaitGroup // that
	ctx        context.Context
	end        context.CancelFunc
}

// renewShare returns how many connections renewals may use of a pool on which claims
// wait, too.
func renewShare(waiting *sql.DB) int {
	if open := waiting.Stats().MaxOpenConnections; open > 0 {
		return min(renewConns, (open-1)/2)
	}
	return renewConns
}

// newRenewals returns renewals on db. They may use conns connections of it.
func newRenewals(db, common *sql.DB, conns int) *renewals {
	n := &renewals{db: db, common: common, alone: make(chan struct{}, max(conns-1, 1))}
	n.ctx, n.end = context.WithCancel(context.Background())
	return n
}

// Renew implements driver.Driver.
//
// A statement that has to wait for one row keeps the others locked meanwhile, for every
// process. So the statement for many skips locked rows, and the rest is renewed alone, side
// by side. Each of these statements says whether its lock is lost.
//
//	batch ── renew.sql, SKIP LOCKED ──▶ all renewed: one request
//	                                └─▶ fewer: renewed.sql says which; these are answered
//	                                    └─▶ the rest: renew-alone.sql each; renewed, lost, or blocked
//
// A single lock begins like a batch: its row can mostly be had, and it must not queue
// with locks on blocked rows.
func (d *store) Renew(ctx context.Context, batch []driver.Renewal) {
	if d.renewals.skip {
		d.renewTogether(ctx, batch)
	}
	driver.RenewEach(ctx, batch, d.renewAlone)
}

// renewTogether renews the locks on unlocked rows, and answers these.
//
// If the row count says that all were renewed, that is known at once. If not, a second statement
// tells the renewed ones. The count may also fall short because a lease reaches beyond its
// renewal, where the server counts changed rows, not matched ones. If the first statement has
// found none at all, it has no reading of the clock to answer with.
func (d *store) renewTogether(ctx context.Context, batch []driver.Renewal) {
	v := renewValues(batch)
	pool := d.renewals.pool()
	began := time.Now()
	at, rows, err := d.exec(ctx, d.renewal(pool, d.sql.fill("renew", v)))
	if err != nil && ctx.Err() != nil && pool != d.renewals.common && time.Since(began) >= min(deadAfter, batch[0].TTL/4) {
		// It has waited neither for a row nor for a connection that others use, so the connection is dead, and those
		// beside it may be: a failover may have ended none of them. The next renewal connects.
		d.closeIdle()
	}
	all := rows >= int64(len(batch))
	var ends map[string]time.Duration
	if err == nil && !all && at != 0 {
		v.number = strconv.FormatInt(at, 10)
		ends, err = d.renewed(ctx, v)
	}
	// A server may refuse this statement and accept the one for a single lock.
	if err != nil && driver.FateOf(err) == driver.Answered {
		return
	}
	for i := range batch {
		r := &batch[i]
		switch ttl := roundUp(r.TTL); {
		case err != nil:
			r.Answer(driver.Grant{}, err)
		case all || ends[r.Claim.(*claim).request.Owner] >= ttl:
			r.Answer(driver.Grant{TTL: ttl}, nil)
		}
	}
}

// renewValues returns what the statements about a batch are completed with.
func renewValues(batch []driver.Renewal) values {
	var names, owners []string
	var ttls strings.Builder
	common := roundUp(batch[0].TTL)
	for _, r := range batch {
		request := &r.Claim.(*claim).request
		names = append(names, hexOf(request.Name))
		owners = append(owners, request.Owner)
		// Most batches have one TTL. A CASE is sent for the others only.
		if ttl := roundUp(r.TTL); ttl != common {
			fmt.Fprintf(&ttls, " WHEN x'%s' THEN %d", request.Owner, ttl.Microseconds())
		}
	}
	v := values{
		name:   strings.Join(names, next),
		owner:  strings.Join(owners, next),
		number: strconv.FormatInt(common.Microseconds(), 10),
	}
	if ttls.Len() > 0 {
		v.number = "CASE owner" + ttls.String() + " ELSE " + v.number + " END"
	}
	return v
}

// renewed returns by owner how long leases last after the reading of the clock in v. A
// lease that was renewed then lasts for its TTL at the least.
func (d *store) renewed(ctx context.Context, v values) (map[string]time.Duration, error) {
	ends := make(map[string]time.Duration)
	err := d.query(ctx, d.renewals.pool(), d.sql.fill("renewed", v), func(row *sql.Rows) error {
		var owner []byte
		var left int64
		err := row.Scan(&owner, &left)
		ends[hex.EncodeToString(owner)] = micros(left)
		return err
	})
	return ends, err
}

// renewAlone renews one lock, and waits for its row if it must.
func (d *store) renewAlone(ctx context.Context, claimed driver.Claim, ttl time.Duration) (driver.Grant, error) {
	select {
	case d.renewals.alone <- struct{}{}: // for one wait for the row: then others may try
		defer func() { <-d.renewals.alone }()
	case <-ctx.Done():
		return driver.Grant{}, &driver.Fault{Fate: driver.NotSent, Err: ctx.Err()}
	}
	v := claimed.(*claim).values()
	ttl = roundUp(ttl)
	v.number = strconv.FormatInt(ttl.Microseconds(), 10)
	at, rows, err := d.exec(ctx, d.renewal(d.renewals.pool(), d.sql.fill("renew-alone", v)))
	switch {
	case err != nil:
		return driver.Grant{}, err
	// The statement has found no running lease of this claim, or LAST_INSERT_ID would be the
	// clock. A trigger on the table may lose that, but not the row.
	case at == 0 && rows == 0:
		return driver.Grant{}, distlock.ErrLost
	}
	return driver.Grant{TTL: ttl}, nil
}

// pool returns where to send a renewal: to the connections of renewals, or to the common ones if none of those
// is there yet, because a dial takes several round trips, or none is to be had: the server has a
// limit, or the pool was closed. Then one is made for the next renewal.
func (n *renewals) pool() *sql.DB {
	if n.db == n.common || n.db.Stats().Idle > 0 {
		return n.db
	}
	n.connect()
	return n.common
}

// connect makes a connection for the next renewal, in the background: the call that
// needs it first may have less time than that takes.
func (n *renewals) connect() {
	if n.ctx.Err() != nil || !n.connecting.TryLock() {
		return
	}
	n.idle.Go(func() {
		defer n.connecting.Unlock()
		ctx, cancel := context.WithTimeout(n.ctx, checkTimeout)
		defer cancel()
		_ = n.db.PingContext(ctx) // leaves it in its pool
	})
}

// close is called when no renewal is under way.
func (n *renewals) close() {
	n.end()
	n.idle.Wait()
}
