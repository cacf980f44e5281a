package peers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
)

// pollEvery is what libraries with a table poll at, give or take.
const pollEvery = 100 * time.Millisecond

var polledTable = Contender{
	Name: "polled table", Backend: servers.MySQL, Role: Peer, Polls: true,
	Note: "Written here: a row per lock with an owner and an expiry, one statement a try, DELETE to release, a try every 100 ms; renewed by a goroutine a lock at a third of the TTL where locks are held.",
	Open: func(ctx context.Context, t Target) (Client, error) {
		db, err := openTable(ctx, t.URLs[0], poolSize, `CREATE TABLE IF NOT EXISTS bench_polled
			(name VARBINARY(255) PRIMARY KEY, owner VARBINARY(64) NOT NULL, expires DATETIME(6) NOT NULL) ENGINE=InnoDB`)
		return &polledClient{db, t}, err
	},
}

type polledClient struct {
	*sql.DB
	target Target
}

type polledHeld struct {
	*renewal
	db          *sql.DB
	name, owner string
}

// The second assignment sees the owner that the first has left.
const polledTry = `INSERT INTO bench_polled VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)
	ON DUPLICATE KEY UPDATE owner = IF(expires < UTC_TIMESTAMP(6), VALUES(owner), owner),
		expires = IF(owner = VALUES(owner), VALUES(expires), expires)`

func (c *polledClient) Lock(ctx context.Context, name string) (Held, error) {
	h := &polledHeld{db: c.DB, name: name, owner: rand.Text()}
	ttl := c.target.TTL.Microseconds()
	for {
		err := changed(c.ExecContext(ctx, polledTry, name, h.owner, ttl))
		if err == nil {
			break
		}
		if !errors.Is(err, errNoChange) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pollEvery):
		}
	}
	if c.target.Renew {
		h.renewal = keep(c.target.TTL, func(ctx context.Context) error {
			return changed(c.ExecContext(ctx, `UPDATE bench_polled SET expires = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
				WHERE name = ? AND owner = ?`, ttl, name, h.owner))
		})
	}
	return h, nil
}

func (h *polledHeld) Unlock(ctx context.Context) error {
	h.stop()
	return changed(h.db.ExecContext(ctx, "DELETE FROM bench_polled WHERE name = ? AND owner = ?", h.name, h.owner))
}

var errNoChange = errors.New("no row was changed")

// changed makes an error of a statement that has changed nothing.
func changed(r sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return errNoChange
}
