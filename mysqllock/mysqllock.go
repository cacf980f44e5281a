// Package mysqllock keeps locks in a table of MySQL 8 or 9 or MariaDB 10.11 or
// newer.
//
//	locker, err := mysqllock.New(db, &mysqllock.Options{Create: true}) // on your own *sql.DB
//	locker, err := mysqllock.Open(ctx, "mysql://user:password@localhost/app", nil)
//
// A name is a row, and a lock is its owner and the end of its lease, judged by the server's clock
// alone. Acquiring, renewing and releasing are one statement each. What is stored,
// what is guaranteed and what rights it takes:
// https://github.com/distlock-go/distlock/blob/main/docs/mysql.md
package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// Options configure a Locker. Nil means the defaults.
type Options struct {
	distlock.Options

	// Table is where the locks are kept, as "table" or "schema.table"; letters,
	// digits, _ and $ are allowed. Lockers contend if they share a table. Empty
	// means DefaultTable, in the schema that the connections use at first.
	Table string

	// Create creates the table if it does not exist. Otherwise a missing table is
	// an error.
	Create bool

	// MaxConns bounds the connections of the pool that Open or OpenDSN makes; 0
	// means 16. None is held by a Lock that waits, so that even 1 is enough. Up to
	// three more renew locks, and do nothing else. New does not look at it.
	MaxConns int

	// WaitConns bounds the connections that Lock uses, beyond MaxConns, to wait for a release. It uses one for each name
	// that this Locker waits for, or holds after a wait. Where they do not suffice, or named locks do not work, Lock polls.
	// Open and OpenDSN open them when they are needed; 0 means 8, less means none. One more serves all names that this
	// Locker has held for longer than a moment.
	WaitConns int

	// WaitDB is the pool for the connections of WaitConns with New: New cannot open
	// any itself. It must be of the same server and schema, with autocommit on, but not the
	// pool of New, for its connections are kept for as long as Lock waits: a readTimeout in
	// its DSN would end that. Locks are renewed on it too, unless it is limited to two
	// connections or fewer. Nil means that Lock polls, and that locks are renewed on the pool
	// of New. The Locker does not close it.
	WaitDB *sql.DB
}

// Locker is a distlock.Locker over a table. It is safe for concurrent use.
type Locker struct {
	*driver.Client
}

var _ distlock.Locker = (*Locker)(nil)

// New returns a Locker on db, a pool of github.com/go-sql-driver/mysql. Close does not
// close db. Pool limits, set before New, may be any. The pool lends connections as they were
// left, so a request is two round trips: those in an open transaction or without autocommit are
// passed over, and a timestamp that was set is reset. New asks the server, within ten seconds, whether the table can be
// used, and fails with an error that says what is missing, or with distlock.ErrInvalid if an
// option is not allowed.
//
// What the rest of the program does with db is not in the Locker's hands: while it keeps
// all connections busy, no lock can be renewed on them. WaitDB is for that, too.
// What else only Open can promise:
// https://github.com/distlock-go/distlock/blob/main/docs/mysql.md#guarantees-and-limits
func New(db *sql.DB, o *Options) (*Locker, error) {
	o = cmp.Or(o, new(Options))
	d := &store{db: db, lent: true}
	err := o.check(db)
	if db == nil {
		err = fmt.Errorf("%w: the *sql.DB is nil", distlock.ErrInvalid)
	}
	if err != nil {
		return nil, opened(err)
	}
	if o.WaitDB != nil {
		if share := renewShare(o.WaitDB); share > 0 {
			d.renewals = newRenewals(o.WaitDB, db, share)
		}
	}
	return open(context.Background(), d, o, checkTimeout)
}

func opened(err error) error { return &distlock.Error{Op: "open mysql", Err: err} }

// Lock is the distlock.Lock of this package. It is safe for concurrent use.
type Lock struct {
	*driver.Handle
	claim *claim
}

var _ distlock.Lock = (*Lock)(nil)

// Guard fences a transaction: it returns nil if the lock is held, and then keeps
// the name from all others until tx has ended, also past the lease. Everything
// that tx has written and will write is then written under the lock. tx must be on
// the server that has the table, and open: a statement that commits implicitly, such as
// TRUNCATE, has ended it.
//
// Call it last, just before Commit: the row of the lock cannot be renewed, nor
// released, while tx is open, and renewals of other locks may have to wait with it.
//
// It returns distlock.ErrLost or ErrUnlocked if the lock has ended, or the server's error. That
// may be a deadlock, or 1020 from MariaDB with innodb_snapshot_isolation, if the row of
// the lock was written since tx first read; tx should then be rolled back, and may be
// repeated.
func (l *Lock) Guard(ctx context.Context, tx *sql.Tx) error {
	err := errors.Unwrap(l.Err()) // without the name
	if err == nil {
		var one int
		v := l.claim.values()
		v.number = strconv.FormatInt(l.StoreToken(), 10)
		err = tx.QueryRowContext(ctx, l.claim.driver.sql.fill("guard", v)).Scan(&one)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = distlock.ErrLost
	}
	if err != nil {
		return &distlock.Error{Op: "guard", Name: l.Name(), Err: err}
	}
	return nil
}
