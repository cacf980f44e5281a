package mysqllock

import (
	"context"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock"
)

// DefaultTable is the table where Options name none.
const DefaultTable = "distlock"

//go:embed sql/*.sql
var files embed.FS

// validTable allows what an unquoted identifier may be made of, and so leaves
// nothing to escape. 64 characters is the limit of MySQL and MariaDB.
var validTable = regexp.MustCompile(`^(?:([A-Za-z_][A-Za-z0-9_$]{0,63})\.)?([A-Za-z_][A-Za-z0-9_$]{0,63})$`)

// statements are the texts of sql/*.sql, ready for fill.
type statements struct {
	table  string // as it was given
	schema string // where it is; found out by ensure
	text   map[string]string
}

// newStatements reads the statements for a table, given as "table" or
// "schema.table".
func newStatements(table string) (*statements, error) {
	m := validTable.FindStringSubmatch(table)
	if m == nil {
		return nil, fmt.Errorf("%w: the table is %q, allowed are letters, digits, _ and $, 64 at most, not beginning with a digit, as table or schema.table",
			distlock.ErrInvalid, table)
	}
	s := &statements{table: table, text: make(map[string]string)}
	quoted, schema := "`"+m[2]+"`", "DATABASE()"
	if m[1] != "" {
		quoted, schema = "`"+m[1]+"`."+quoted, "'"+m[1]+"'"
	}
	entries, err := files.ReadDir("sql")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		raw, err := files.ReadFile("sql/" + e.Name())
		if err != nil {
			return nil, err
		}
		s.text[strings.TrimSuffix(e.Name(), ".sql")] = withoutComments(string(raw))
	}
	// Fragments first: their text contains the words that come after them.
	free := s.text["free"]
	expand := strings.NewReplacer("{takes}", strings.ReplaceAll(s.text["takes"], "{free}", free), "{free}", free, "{idle-row}", s.text["idle"])
	finish := strings.NewReplacer("{table}", quoted, "{now}", s.text["now"],
		"{schema-text}", schema, "{table-text}", "'"+m[2]+"'",
		"{name}", "%[1]s", "{owner}", "%[2]s", "{holder}", "%[3]s",
		"{ttl}", "%[4]s", "{token}", "%[4]s", "{renewed}", "%[4]s", "{idle}", "%[4]s", "{length}", "%[4]s",
		"{via}", "%[5]s", "{bell}", "%[6]s", "{bell-taken}", strconv.FormatInt(bellTaken.Microseconds(), 10))
	for name, text := range s.text {
		s.text[name] = finish.Replace(expand.Replace(text))
	}
	return s, nil
}

func withoutComments(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(lines, "\n")
}

// values are what a statement is completed with. Texts are in hexadecimal, which
// survives every sql_mode and charset, and leaves nothing to escape.
type values struct{ name, owner, holder, number, bell string }

func hexOf(text string) string { return hex.EncodeToString([]byte(text)) }

// next stands between the elements where a value is a list.
const next = "',x'"

// fill writes values into a statement, to be sent as it is in a single round trip.
func (s *statements) fill(statement string, v values) string {
	return fmt.Sprintf(s.text[statement], "x'"+v.name+"'", "x'"+v.owner+"'", "x'"+v.holder+"'", v.number, "", "x'"+v.bell+"'")
}

// slot is a place for a value in a statement.
var slot = regexp.MustCompile(`%\[[1-5]\]s`)

// prepared is a statement that the server parses once per connection. The two that
// every lock needs are: parsing would take as long as the work.
type prepared struct {
	stmt  *sql.Stmt
	slots []byte // which of the values each parameter is, as '1' to '5'
}

func (s *statements) prepare(ctx context.Context, db *sql.DB, statement string) (*prepared, error) {
	p := new(prepared)
	text := slot.ReplaceAllStringFunc(s.text[statement], func(found string) string {
		p.slots = append(p.slots, found[2])
		switch found[2] {
		case '4', '5': // a number
			return "?"
		case '3': // the holder alone may be empty, which MariaDB's EMPTY_STRING_IS_NULL makes a NULL
			return "COALESCE(UNHEX(?), x'')"
		}
		return "UNHEX(?)"
	})
	stmt, err := db.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	p.stmt = stmt
	return p, nil
}

// arguments puts the values into the order of the parameters.
func (p *prepared) arguments(v values, numbers ...int64) []any {
	all := []any{v.name, v.owner, v.holder}
	for _, n := range numbers {
		all = append(all, n)
	}
	out := make([]any, len(p.slots))
	for i, n := range p.slots {
		out[i] = all[n-'1']
	}
	return out
}

// Schema returns the statement that creates the table, given as "table" or
// "schema.table", for those who do not want to leave that to Options.Create. It
// fails with distlock.ErrInvalid if the name is not allowed.
func Schema(table string) (string, error) {
	s, err := newStatements(table)
	if err != nil {
		return "", err
	}
	return s.text["schema"], nil
}

// ensure makes sure that the table is there and fit for use.
func (s *statements) ensure(ctx context.Context, db *sql.DB, create bool) error {
	err := s.check(ctx, db)
	if create && hasNumber(err, errNoTable) {
		// Others may be creating it at this moment: IF NOT EXISTS makes that no error.
		if _, err := db.ExecContext(ctx, s.text["schema"]); err != nil {
			return s.explain(err)
		}
		err = s.check(ctx, db)
	}
	return s.explain(err)
}

// check has the server prepare every statement that locks need, which it refuses if
// a table, a column or a right is missing, and looks at what that cannot show.
func (s *statements) check(ctx context.Context, db *sql.DB) error {
	for _, name := range []string{"acquire", "take", "release", "undo", "renew", "renewed", "guard", "inspect"} {
		p, err := s.prepare(ctx, db, name)
		if err != nil {
			return err
		}
		_ = p.stmt.Close() // the connection's end, if not this, drops it
	}
	return errors.Join(s.checkSession(ctx, db), s.checkColumns(ctx, db))
}

// checkSession refuses sessions whose statements would be rolled back in the end,
// and storage engines without row locks and crash recovery.
func (s *statements) checkSession(ctx context.Context, db *sql.DB) error {
	var autocommit bool
	var engine string
	if err := db.QueryRowContext(ctx, s.text["session"]).Scan(&autocommit, &s.schema, &engine); err != nil {
		return err
	}
	if !autocommit {
		return fmt.Errorf("%w: autocommit is off on the connections of this pool, it must be on", distlock.ErrInvalid)
	}
	if engine != "InnoDB" {
		return fmt.Errorf("%w: the table %s is stored by %q, it must be by InnoDB", distlock.ErrInvalid, s.table, engine)
	}
	return nil
}

// columns are the types that correctness rests on: a shorter name would be cut off
// in a session without strict mode, and two locks be one; a text type would merge
// upper and lower case.
var columns = map[string]struct {
	kind string
	size int // in bytes, at least; for the types that have one
}{
	"name": {"varbinary", distlock.MaxName}, "owner": {"binary", 16}, "undone": {"varbinary", 512},
	"holder": {"varbinary", distlock.MaxHolder}, "token": {kind: "bigint"}, "expires": {kind: "bigint"}, "acquired": {kind: "bigint"},
	"waited": {kind: "bigint"}, "rings": {kind: "tinyint"},
}

func (s *statements) checkColumns(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, s.text["columns"])
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name, kind, key string
		var size int
		if err := rows.Scan(&name, &kind, &size, &key); err != nil {
			return err
		}
		want, used := columns[name]
		if used && (kind != want.kind || size < want.size || size > want.size && kind == "binary") {
			orLonger := " or longer"
			if want.kind == "binary" { // it would be filled up with zeros, and equal nothing
				orLonger = ""
			}
			return fmt.Errorf("%w: the column %s of the table %s is %s(%d), it must be %s(%d)%s",
				distlock.ErrInvalid, name, s.table, kind, size, want.kind, want.size, orLonger)
		}
		if (name == "name") != (key == "PRI") {
			return fmt.Errorf("%w: the primary key of the table %s must be the column name alone", distlock.ErrInvalid, s.table)
		}
	}
	return rows.Err()
}

// explain adds to a server's error about the table what to do about it.
func (s *statements) explain(err error) error {
	switch {
	case hasNumber(err, errNoTable):
		return fmt.Errorf("the table %s does not exist; create it with the statement that Schema returns, or set Create: %w", s.table, err)
	case hasNumber(err, errNoKey):
		return fmt.Errorf("the primary key of the table %s must be the column name alone: %w", s.table, err)
	case hasNumber(err, errNoColumn):
		return fmt.Errorf("the table %s lacks a column, compare it with what Schema returns: %w", s.table, err)
	case hasNumber(err, errNoRight, errNoColumnRight, errNoSchemaRight):
		return fmt.Errorf("the user needs SELECT, INSERT and UPDATE on the table %s, CREATE if it is to be created, DELETE for Sweep: %w", s.table, err)
	}
	return err
}

// Errors of the server by their numbers, which MySQL and MariaDB share.
const (
	errNoSchemaRight = 1044
	errNoColumn      = 1054
	errDuplicate     = 1062
	errNoRight       = 1142
	errNoColumnRight = 1143
	errNoTable       = 1146
	errNoKey         = 1176
	errLockWait      = 1205
	errDeadlock      = 1213
)

// hasNumber reports whether err is the server's, with one of these numbers.
func hasNumber(err error, numbers ...uint16) bool {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return false
	}
	for _, n := range numbers {
		if e.Number == n {
			return true
		}
	}
	return false
}
