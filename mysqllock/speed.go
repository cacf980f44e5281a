package mysqllock

import (
	"context"
	"database/sql"
	"regexp"
	"strconv"
	"time"
)

// This file is only for speed; see docs/reports/performance.md.

// prepared is a statement that the server parses once per connection.
type prepared struct {
	stmt  *sql.Stmt // nil on a pool of the user's: no statement can be kept for a connection that is settled first
	slots []byte    // which of the values each parameter is, as '1' to '5'

	plain func(values) request // the same as text
}

// slot is where a value goes in a statement.
var slot = regexp.MustCompile(`%\[[1-5]\]s`)

// unprepared is a statement that is sent as text.
func (d *store) unprepared(statement string) *prepared {
	return &prepared{plain: func(v values) request { return d.plain(d.db, d.sql.fill(statement, v)) }}
}

func (d *store) parse(ctx context.Context, statement string) (*prepared, error) {
	p := d.unprepared(statement)
	text := slot.ReplaceAllStringFunc(d.sql.text[statement], func(found string) string {
		p.slots = append(p.slots, found[2])
		switch found[2] {
		case '4', '5': // a number
			return "?"
		case '3': // the holder alone may be empty, which MariaDB's EMPTY_STRING_IS_NULL makes a NULL
			return "COALESCE(UNHEX(?), x'')"
		}
		return "UNHEX(?)"
	})
	var err error
	p.stmt, err = d.db.PrepareContext(ctx, text)
	return p, err
}

// with is a request of a prepared statement, or of its text on a new connection of a server that prepares no more.
func (p *prepared) with(v values, numbers ...int64) request {
	all := []any{v.name, v.owner, v.holder}
	for _, n := range numbers {
		all = append(all, n)
	}
	arguments := make([]any, len(p.slots))
	for i, n := range p.slots {
		arguments[i] = all[n-'1']
	}
	var number, seen int64
	if len(numbers) == 2 {
		number, seen = numbers[0], numbers[1]
	}
	return func(ctx context.Context) (sql.Result, error) { // what it uses is not changed: else it would be on the heap
		if p.stmt != nil {
			result, err := p.stmt.ExecContext(ctx, arguments...)
			if !hasNumber(err, errStatementLimit) {
				return result, err
			}
		}
		filled := v
		filled.number, filled.seen = strconv.FormatInt(number, 10), strconv.FormatInt(seen, 10)
		return p.plain(filled)(ctx)
	}
}

// freedFor is for how long it is remembered that this driver was the last to give a name back, as far as it
// knows: the name has a row, and is likely to be free. take.sql serves it. Every acquisition
// removes the mark: the name is free again only after its next release.
const freedFor = time.Hour
