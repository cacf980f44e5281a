package mysqllock

import (
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// Errors of the server by their numbers. MySQL and MariaDB share them.
const (
	errRecordChanged   = 1020 // MariaDB with innodb_snapshot_isolation
	errDiskFull        = 1021
	errFromEngine      = 1030 // most of all that the disk is full
	errNoMemory        = 1037
	errNoSortMemory    = 1038
	errTooManyConns    = 1040
	errNoResources     = 1041
	errNoSchemaRight   = 1044
	errNoSchemaNamed   = 1046
	errNotReady        = 1047 // a member of a Galera cluster that has no quorum
	errNoSchema        = 1049
	errNoColumn        = 1054
	errDuplicate       = 1062
	errNoThread        = 1094
	errTableFull       = 1114
	errNoRight         = 1142
	errNoColumnRight   = 1143
	errNoTable         = 1146
	errSafeUpdates     = 1175
	errNoKey           = 1176
	errCommitFailed    = 1180
	errTooManyForUser  = 1203
	errLockWait        = 1205
	errDeadlock        = 1213
	errUserLimit       = 1226
	errReadOnly        = 1290
	errTableChanged    = 1412
	errStatementLimit  = 1461 // of prepared statements on the server
	errWrongValue      = 1231
	errInXA            = 1399
	errInTransaction   = 1568
	errPrepareAgain    = 1615
	errReadOnlySession = 1792
	errReadOnlyEngine  = 1836
	errOffline         = 3032
	errHookFailed      = 3100 // Group Replication, as is the next
	errRolledBack      = 3101
)

var (
	// undone are the errors of statements that the server rolled back for reasons that have
	// nothing to do with them: a deadlock, also with another server of a cluster, a row that was
	// not to be had in time, a duplicate that another transaction then took back.
	undone = []uint16{errDeadlock, errLockWait, errDuplicate, errRecordChanged, errCommitFailed, errTableChanged, errPrepareAgain, errRolledBack}

	// readOnly are those of a server that takes no writes.
	readOnly = []uint16{errReadOnly, errReadOnlySession, errReadOnlyEngine}

	// passing are those of other states that pass.
	passing = []uint16{errDiskFull, errFromEngine, errNoMemory, errNoSortMemory, errNoResources, errNotReady, errTableFull, errStatementLimit, errOffline, errHookFailed}

	// noConnection are those of a server that has no connections left.
	noConnection = []uint16{errTooManyConns, errTooManyForUser, errUserLimit}

	// refusals are the classes of SQLSTATE for what the server refuses for good: syntax and
	// rights, a login, no schema, a value that does not fit.
	refusals = []string{"42", "28", "3D", "22"}
)

// fateOf says what a statement may have done that has failed with err. A number that is not listed
// may be one of a proxy, or of a shutdown in the midst of a commit, so it says nothing.
func fateOf(err error) driver.Fate {
	var dial *connectError
	var e *mysql.MySQLError
	var op *net.OpError
	switch answered := errors.As(err, &e); {
	case errors.Is(err, distlock.ErrClosed):
		return driver.Answered
	case leftOpen(err):
		return driver.NotSent
	case answered && slices.Contains(undone, e.Number):
		return driver.Again
	case answered && (slices.Contains(readOnly, e.Number) || slices.Contains(passing, e.Number)):
		return driver.NotNow
	case answered && slices.Contains(noConnection, e.Number):
		return driver.NotSent
	case answered && (e.Number == errSafeUpdates || slices.Contains(refusals, string(e.SQLState[:2]))):
		return driver.Answered
	// database/sql and the client library return ErrBadConn if nothing was sent. The pools of
	// users dial as they like.
	case errors.As(err, &dial), errors.Is(err, sqldriver.ErrBadConn), errors.As(err, &op) && op.Op == "dial":
		return driver.NotSent
	}
	return driver.Unknown
}

// fault gives the error of a statement its fate.
func fault(err error) error {
	if err == nil {
		return nil
	}
	// What database/sql says of a pool that was closed by its owner has no value to compare with.
	if err.Error() == "sql: database is closed" {
		err = fmt.Errorf("%w: %w", distlock.ErrClosed, err)
	}
	return &driver.Fault{Fate: fateOf(err), Err: err}
}

// lastAnswer returns the server's error in err; nil if there is none.
func lastAnswer(err error) error {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e
	}
	return nil
}

// hasNumber reports whether err is the server's, with one of these numbers.
func hasNumber(err error, numbers ...uint16) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && slices.Contains(numbers, e.Number)
}

// connectError says why there is no connection: nothing was sent on it.
type connectError struct{ error }

// Unwrap returns the reason.
func (e *connectError) Unwrap() error { return e.error }
