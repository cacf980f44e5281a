// Package mysqllock keeps locks in a table of MySQL 8 or 9 or MariaDB 10.11 or
// newer.
//
//	locker, err := mysqllock.New(db, &mysqllock.Options{Create: true}) // on your own *sql.DB
//	locker, err := mysqllock.Open(ctx, "mysql://user:password@localhost/app", nil)
//
// A name is a row, and a lock is its owner and the end of its lease, judged by the
// server's clock alone. Acquiring, renewing and releasing are one statement each.
// docs/mysql.md says what is stored, what is guaranteed and which rights it takes.
package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/distlock-go/distlock"
)

// Options configure a Locker. Nil means the defaults.
type Options struct {
	distlock.Options

	// Table is where the locks are kept, as "table" or "schema.table"; letters,
	// digits, _ and $ are allowed. Lockers contend if they share a table. Empty
	// means DefaultTable, in the schema that the connections use.
	Table string

	// Create creates the table if it does not exist. Otherwise a missing table is
	// an error.
	Create bool

	// MaxConns bounds the connections of the pool that Open or OpenDSN makes; 0
	// means 16. None is held by a Lock that waits, so that even 1 is enough. New
	// does not look at it.
	MaxConns int

	// Doorbells bounds the connections, beyond MaxConns, on which Lock waits to be
	// told of a release: one for each name that this Locker waits for. Where they
	// do not suffice, or named locks do not work, Lock polls. Open and OpenDSN
	// open them when they are needed; 0 means 8, less means none. One more serves
	// all names that this Locker has held for longer than a moment.
	Doorbells int

	// Waiting is the pool of the doorbells for New, which cannot open connections
	// itself. It must be of the same server, but not the pool of New, for its
	// connections are kept for as long as Lock waits. Nil means that Lock polls.
	// The Locker does not close it.
	Waiting *sql.DB
}

const (
	defaultDoorbells = 8
	maxDoorbells     = 1000
	checkTimeout     = 10 * time.Second // of what New asks the server
)

// Locker is a distlock.Locker over a table. It is safe for concurrent use.
type Locker struct {
	*distlock.Client
}

var _ distlock.Locker = (*Locker)(nil)

// New returns a Locker on db, a pool of github.com/go-sql-driver/mysql, which it
// does not close. Any DSN parameters and any pool limits will do. It asks the
// server, within ten seconds, whether the table can be used, and fails with an
// error that says what is missing, or with distlock.ErrInvalid if an option is not
// allowed.
func New(db *sql.DB, o *Options) (*Locker, error) {
	if o == nil {
		o = new(Options)
	}
	if o.Waiting == db {
		return nil, opened(fmt.Errorf("%w: Waiting is the pool itself, it must be another", distlock.ErrInvalid))
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	return open(ctx, db, o)
}

// open returns a Locker that closes closers in the end, or has closed them if it
// fails.
func open(ctx context.Context, db *sql.DB, o *Options, closers ...io.Closer) (*Locker, error) {
	d := &driver{db: db, closers: closers}
	c, err := d.client(o)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if err := d.start(ctx, o.Create); err != nil {
		return nil, errors.Join(opened(err), c.Close())
	}
	return &Locker{c}, nil
}

// client checks the options, before the server is asked, and joins the driver to
// the portable half.
func (d *driver) client(o *Options) (*distlock.Client, error) {
	var err error
	if d.sql, err = newStatements(cmp.Or(o.Table, DefaultTable)); err != nil {
		return nil, opened(err)
	}
	if o.Doorbells > maxDoorbells {
		return nil, opened(fmt.Errorf("%w: Doorbells is %d, allowed are up to %d", distlock.ErrInvalid, o.Doorbells, maxDoorbells))
	}
	if o.Waiting != nil && o.Doorbells >= 0 {
		d.bells = newBells(o.Waiting, d.sql, cmp.Or(o.Doorbells, defaultDoorbells))
	}
	return distlock.New(d, &o.Options)
}

func opened(err error) error { return fmt.Errorf("distlock: open mysql: %w", err) }

// Lock is the distlock.Lock of this package. It is safe for concurrent use.
type Lock struct {
	*distlock.Handle
	claim *claim
}

var _ distlock.Lock = (*Lock)(nil)

// Guard fences a transaction: it returns nil if the lock is held, and then keeps
// anybody else from getting it until tx has ended, also past the lease. Everything
// that tx has written and will write is then written under the lock. tx must be on
// the server that has the table.
//
// Call it last, just before Commit: the row of the lock cannot be renewed, nor
// released, while tx is open, and renewals of other locks may have to wait with it.
//
// It returns distlock.ErrLost if the lock has ended, or the server's error, which
// may be a deadlock, or 1020 from MariaDB with innodb_snapshot_isolation, if the row of
// the lock was written since tx first read; tx should then be rolled back, and may be
// repeated.
func (l *Lock) Guard(ctx context.Context, tx *sql.Tx) error {
	err := l.Err()
	if err == nil {
		var one int
		v := l.claim.values()
		v.number = strconv.FormatInt(l.Token(), 10)
		err = tx.QueryRowContext(ctx, l.claim.driver.sql.fill("guard", v)).Scan(&one)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = distlock.ErrLost
	}
	if err != nil {
		return fmt.Errorf("distlock: guard %q: %w", l.Name(), err)
	}
	return nil
}
