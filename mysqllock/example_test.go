package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/mysqllock"
)

func ExampleOpen() {
	ctx := context.Background()
	locker, err := mysqllock.Open(ctx, "mysql://user:password@localhost/shop?create=true", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	err = distlock.Do(ctx, locker, "orders/42", func(ctx context.Context) error {
		return nil // pay it; ctx ends if the lock is lost
	})
	fmt.Println(err)
}

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
