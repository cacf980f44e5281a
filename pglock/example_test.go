package pglock_test

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/pglock"
)

// A transaction in the database of the lock is committed only if the lock is held then.
func ExampleLock_Guard() {
	pay := func(ctx context.Context, pool *pgxpool.Pool, lock distlock.Lock) error {
		held, ok := distlock.As[*pglock.Lock](lock)
		if !ok {
			return errors.New("this needs a lock in Postgres")
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `UPDATE orders SET state = 'paid' WHERE id = 42`); err != nil {
				return err
			}
			return held.Guard(ctx, tx) // last: it holds the row of the lock
		})
	}
	_ = pay
}
