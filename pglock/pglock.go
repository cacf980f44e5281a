// Package pglock keeps locks in a table of Postgres 13 or newer.
//
//	locker, err := pglock.New(pool, &pglock.Options{Create: true}) // on your own *pgxpool.Pool
//	locker, err := pglock.Open(ctx, "postgres://user:password@localhost/app", nil)
//
// A name is a row, and a lock is its owner and the end of its lease, judged by the server's clock
// alone. No session has it and no transaction stays open, so poolers and proxies do no harm. What
// is stored, what is guaranteed and what rights it takes:
// https://github.com/distlock-go/distlock/blob/main/docs/postgres.md
package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// Options configure a Locker. Nil means the defaults.
type Options struct {
	distlock.Options

	// Table is where the locks are kept, as "table" or "schema.table", in letters, digits and
	// _, upper and lower case being different. Lockers contend if they share a table. Empty
	// means DefaultTable. A table without a schema is looked for along the search_path, once.
	Table string

	// Create creates the table if it does not exist. Otherwise a missing table is
	// an error.
	Create bool

	// MaxConns bounds the connections of the pool that Open makes; 0 means 16. None is held by
	// a Lock that waits. One more listens for releases, and one to three renew locks and do
	// nothing else. New does not look at it.
	MaxConns int
}

// Locker is a distlock.Locker over a table. It is safe for concurrent use.
type Locker struct {
	*driver.Client
}

var _ distlock.Locker = (*Locker)(nil)

// New returns a Locker on pool, which Close does not close. It asks the server, within ten
// seconds, whether the table can be used, and fails with an error that says what is missing, or
// with distlock.ErrInvalid if an option is not allowed.
//
// While the rest of the program keeps all connections of the pool busy, no lock can be renewed. The pool keeps the place of
// a connection whose request was given up, for up to 15 seconds if the server is silent.
// When a claim first waits, one connection is taken out of the pool, to listen for releases.
func New(pool *pgxpool.Pool, o *Options) (*Locker, error) {
	if pool == nil {
		return nil, opened(fmt.Errorf("%w: the *pgxpool.Pool is nil", distlock.ErrInvalid))
	}
	return open(context.Background(), &store{pool: pool, renewals: pool}, *cmp.Or(o, new(Options)), checkTimeout)
}

func opened(err error) error { return &distlock.Error{Op: "open postgres", Err: err} }

// Lock is the distlock.Lock of this package. It is safe for concurrent use.
type Lock struct {
	*driver.Handle
	claim *claim
}

var _ distlock.Lock = (*Lock)(nil)

// Guard fences a transaction: it returns nil if the lock is held, and then keeps
// the name from all others until tx has ended, also past the lease. Everything
// that tx has written and will write is then written under the lock. tx must be on
// the database that has the table.
//
// Call it last, just before Commit: the row of the lock cannot be renewed, nor
// released, while tx is open.
//
// It returns distlock.ErrLost or ErrUnlocked if the lock has ended, or the server's error. That may be a
// failure to serialize, 40001, if the isolation of tx is more than read committed and the row
// was written since tx first read; tx should then be rolled back, and may be repeated.
func (l *Lock) Guard(ctx context.Context, tx pgx.Tx) error {
	err := errors.Unwrap(l.Err()) // without the name
	if err == nil {
		var held bool
		c := l.claim
		err = tx.QueryRow(ctx, c.store.text["guard"], c.name(), c.owner, c.since).Scan(&held)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = distlock.ErrLost
	}
	if err != nil {
		return &distlock.Error{Op: "guard", Name: l.Name(), Err: err}
	}
	return nil
}
