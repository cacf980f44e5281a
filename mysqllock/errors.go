package mysqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock"
)

// Errors of the server by their numbers. MySQL and MariaDB share them.
const (
	errRecordChanged  = 1020 // MariaDB with innodb_snapshot_isolation
	errTooManyConns   = 1040
	errNoSchemaRight  = 1044
	errNoSchemaNamed  = 1046
	errNoSchema       = 1049
	errShutdown       = 1053
	errNoColumn       = 1054
	errDuplicate      = 1062
	errNoRight        = 1142
	errNoColumnRight  = 1143
	errNoTable        = 1146
	errNoKey          = 1176
	errCommitFailed   = 1180
	errTooManyForUser = 1203
	errLockWait       = 1205
	errDeadlock       = 1213
	errUserLimit      = 1226
	errReadOnly       = 1290
	errRolledBack     = 3101 // Group Replication
)

// rolledBack are the errors of statements that the server rolled back for reasons that
// have nothing to do with them: a deadlock, also with another server of a cluster, a row
// that was not to be had in time, a duplicate that another transaction then took back.
var rolledBack = []uint16{errDeadlock, errLockWait, errDuplicate, errRecordChanged, errCommitFailed, errRolledBack}

func isRolledBack(err error) bool { return hasNumber(err, rolledBack...) }

// isOutage reports whether err says nothing but that the server cannot be reached just
// now, as while it is restarted.
func isOutage(err error) bool {
	return unconnected(err) || hasNumber(err, errShutdown) || !refused(err) && !errors.Is(final(err), distlock.ErrClosed)
}

// refused reports whether err is the server's answer to a statement. Sessions and servers
// may refuse one that others take, such as a join with a list where sql_safe_updates is on.
func refused(err error) bool {
	return lastAnswer(err) != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// lastAnswer returns the server's error in err; nil if there is none.
func lastAnswer(err error) error {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// hasNumber reports whether err is the server's, with one of these numbers.
func hasNumber(err error, numbers ...uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(numbers, e.Number)
}

// unconnected reports whether err says that there is no connection, so that nothing was
// sent: the dial failed, or the server has no connections left.
func unconnected(err error) bool {
	var e *connectError
	return errors.As(err, &e) || hasNumber(err, errTooManyConns, errTooManyForUser, errUserLimit)
}

// final adds distlock.ErrClosed to what database/sql says of a pool that was closed by
// its owner. It has no value to compare with.
func final(err error) error {
	if err != nil && err.Error() == "sql: database is closed" {
		return fmt.Errorf("%w: %w", distlock.ErrClosed, err)
	}
	return err
}

// noAnswerError stands for the end of a bound of the driver, not of the caller. It does not match
// context.DeadlineExceeded, because the engine would take that for the end of the caller's bound.
type noAnswerError struct {
	from  string
	after time.Duration
	last  error // what was said before; nil if nothing was
}

// Error implements error.
func (e *noAnswerError) Error() string {
	text := fmt.Sprintf("no answer from %s within %v", e.from, e.after.Round(time.Millisecond))
	if e.last != nil {
		text += ": the last one was: " + e.last.Error()
	}
	return text
}

// Unwrap returns what was said before.
func (e *noAnswerError) Unwrap() error { return e.last }

// Timeout reports true, as on net.Error.
func (e *noAnswerError) Timeout() bool { return true }

// connectError says why there is no connection: nothing was sent on it.
type connectError struct{ error }

// Unwrap returns the reason.
func (e *connectError) Unwrap() error { return e.error }
