package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/fence"
)

// The row keeps the highest token that has written it. A holder of the past writes nothing.
func ExampleExec() {
	pay := func(ctx context.Context, db *sql.DB, lock distlock.Lock) error {
		err := fence.Exec(ctx, db, `UPDATE orders SET state = 'paid', fence = ? WHERE id = 42 AND fence <= ?`,
			lock.Token(), lock.Token())
		if errors.Is(err, fence.ErrStale) {
			return fmt.Errorf("a later holder has written order 42, or there is none: %w", err)
		}
		return err
	}
	_ = pay
}
