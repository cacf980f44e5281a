package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/mysqllock"
)

// A transaction on the server of the lock is committed only if the lock is held then.
func ExampleLock_Guard() {
	pay := func(ctx context.Context, db *sql.DB, lock distlock.Lock) error {
		held, ok := distlock.As[*mysqllock.Lock](lock)
		if !ok {
			return errors.New("this needs a lock in MySQL")
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'paid' WHERE id = 42`); err != nil {
			return err
		}
		if err := held.Guard(ctx, tx); err != nil { // last: it holds the row of the lock
			return err
		}
		return tx.Commit()
	}
	_ = pay
}
