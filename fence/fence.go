// Package fence helps a resource refuse the writes of a holder that has lost its lock
// and does not know it yet. No lock service can stop a process that is paused between
// its last look at the lock and its write; a resource that compares fencing tokens can.
//
//   - [Exec] is for a table with a column for the fence, in any SQL database.
//   - [RedisScript] is for a hash in Redis with a field for it.
//   - [Memory] is for a service that keeps its state in memory, and for tests.
//
// What lies in the store of the lock itself needs no column: a transaction can ask
// whether the lock is held. See Guard of packages mysqllock and pglock, Cmp of etcdlock
// and Path of zklock. An example of each, and why the commit comes before Unlock:
// https://github.com/distlock-go/distlock/blob/main/docs/fencing.md
//
// All of them accept a token that equals the highest so far: a holder may write more than once.
package fence

import (
	"context"
	"database/sql"
	_ "embed" // for RedisScript
	"errors"
	"fmt"
	"sync"
)

// ErrStale says that a request was refused, and has changed nothing: one with a higher
// token has been there, so its holder has lost the lock. [Exec] also returns it for a row that does not exist.
var ErrStale = errors.New("fence: refused: a later holder of the lock has been here")

// Execer is a *sql.DB, *sql.Tx or *sql.Conn.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Exec runs a statement that changes rows only if their fence is not above a token, and
// sets it:
//
//	UPDATE orders SET state = 'paid', fence = ? WHERE id = 42 AND fence <= ?
//
// On Postgres the parameters are $1 and $2.
//
// It returns ErrStale if no row was changed, since a refused UPDATE is no error of the
// database; so a row that does not exist counts as refused, too. The statement must address one
// row: of several, one that is refused is not noticed. In a transaction, roll back then.
//
// MySQL says of an UPDATE to the values that a row has already that it has changed no
// row, unless the connection has clientFoundRows=true in its DSN: without that, a write
// that a holder repeats is refused.
func Exec(ctx context.Context, db Execer, statement string, args ...any) error {
	result, err := db.ExecContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = fmt.Errorf("%w, or there is no such row, or MySQL lacks clientFoundRows=true", ErrStale)
	}
	return err
}

// RedisScript writes fields of a hash if its field "fence" is not above a token, and sets
// that. KEYS[1] is the hash, ARGV[1] the token, a whole number above 0 in decimal, and the
// others are fields, none of them "fence", and values in turn. A refusal is an error that
// begins with STALE, and anything that is not allowed one that begins with ERR, or with
// WRONGTYPE if the key is no hash; after each, nothing was written:
//
//	write := redis.NewScript(fence.RedisScript)
//	err := write.Run(ctx, client, []string{"order:42"}, lock.Token(), "state", "paid").Err()
//	if redis.HasErrorPrefix(err, "STALE") {
//		err = fence.ErrStale
//	}
//
//go:embed write.lua
var RedisScript string

// Memory keeps the highest tokens that it was shown, by the name of a resource. The
// zero value is ready. It is safe for concurrent use; the check and what it protects
// must be one step, so the caller has a mutex of its own around both.
type Memory struct {
	mu    sync.Mutex
	marks map[string]mark
}

// mark is the highest token of a write, and of any request.
type mark struct{ write, any int64 }

// Write returns nil if no request with a higher token was made for name, and ErrStale
// otherwise.
func (m *Memory) Write(name string, token int64) error {
	return m.admit(name, token, func(k mark) (int64, mark) { return k.any, mark{token, token} })
}

// Read returns nil if no write with a higher token was made for name, and ErrStale
// otherwise. Reads must be shown as well: a stale write that comes between a
// read and the write of the present holder would be overwritten unseen.
func (m *Memory) Read(name string, token int64) error {
	return m.admit(name, token, func(k mark) (int64, mark) { return k.write, mark{k.write, max(k.any, token)} })
}

func (m *Memory) admit(name string, token int64, judge func(mark) (highest int64, next mark)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	highest, next := judge(m.marks[name])
	if token < highest {
		return fmt.Errorf("%w: %q was shown the token %d, this is %d", ErrStale, name, highest, token)
	}
	if m.marks == nil {
		m.marks = make(map[string]mark)
	}
	m.marks[name] = next
	return nil
}
