package mysqllock

import (
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/sqltext"
)

// DefaultTable is the table where Options name none.
const DefaultTable = "distlock"

//go:embed sql/*.sql
var files embed.FS

// validTable allows what an unquoted identifier may be made of, and so leaves
// nothing to escape. 64 characters is the limit of MySQL and MariaDB.
var validTable = regexp.MustCompile(`^(?:([A-Za-z_][A-Za-z0-9_$]{0,63})\.)?([A-Za-z_][A-Za-z0-9_$]{0,63})$`)

// statements are the texts of sql/*.sql for one table, ready for fill.
type statements struct {
	table  string // as it was given
	schema string // where it is; checkSession finds it out
	text   map[string]string
}

// newStatements reads the statements for a table, given as "table" or
// "schema.table".
func newStatements(table string) (*statements, error) {
	schema, name, err := sqltext.Table(table, validTable, "letters, digits, _ and $, 64")
	if err != nil {
		return nil, err
	}
	quoted := "`" + name + "`"
	if schema == "" {
		schema = "DATABASE()"
	} else {
		quoted, schema = "`"+schema+"`."+quoted, "'"+schema+"'"
	}
	return &statements{table: table, text: texts(quoted, schema, name)}, nil
}

// qualify has the statements name the schema that was found, where the user has named none. On a pool of the user's, another
// may USE a schema that has such a table as well; then a lock there and one here would both be granted. A schema with a
// percent sign cannot be in a text for fill, and is left out.
func (s *statements) qualify() {
	if s.schema != "" && !strings.Contains(s.table, ".") && !strings.Contains(s.schema, "%") {
		s.text = texts("`"+strings.ReplaceAll(s.schema, "`", "``")+"`.`"+s.table+"`", "DATABASE()", s.table)
	}
}

// texts reads the statements for a table, as they name it, and for the names of its schema and of itself as values.
func texts(quoted, schema, name string) map[string]string {
	text := sqltext.Read(files)
	// Fragments first: their text contains the words that come after them.
	free := text["free"]
	text["session-plain"] = strings.ReplaceAll(text["session"], "{named-locks}", "0")
	expand := strings.NewReplacer("{takes}", strings.ReplaceAll(text["takes"], "{free}", free), "{free}", free, "{idle-row}", text["idle"],
		"{named-locks}", text["named-locks"])
	finish := strings.NewReplacer("{table}", quoted, "{now}", text["now"],
		"{schema-text}", schema, "{table-text}", "'"+name+"'",
		"{name}", "%[1]s", "{owner}", "%[2]s", "{holder}", "%[3]s",
		"{ttl}", "%[4]s", "{token}", "%[4]s", "{renewed}", "%[4]s", "{idle}", "%[4]s",
		"{via}", "%[5]s", "{seen}", "%[5]s", "{lock}", "%[6]s", "{lock-taken}", strconv.FormatInt(lockTaken.Microseconds(), 10),
		"{max-late}", strconv.FormatInt(driver.MaxLate.Microseconds(), 10), "{reading-age}", strconv.FormatInt(maxReadingAge.Microseconds(), 10))
	for statement, t := range text {
		text[statement] = finish.Replace(expand.Replace(t))
	}
	return text
}

// Schema returns the statement that creates the table, given as "table" or
// "schema.table", for programs that do not leave that to Options.Create. It
// fails with distlock.ErrInvalid if the name is not allowed.
func Schema(table string) (string, error) {
	s, err := newStatements(table)
	if err != nil {
		return "", err
	}
	return s.text["schema"], nil
}

// values complete a statement. Texts are in hexadecimal: that survives every sql_mode and
// charset, and leaves nothing to escape.
type values struct{ name, owner, holder, number, seen, lock string }

// next stands between the elements where a value is a list.
const next = "',x'"

// fill writes values into a statement, to be sent as it is in a single round trip.
func (s *statements) fill(statement string, v values) string {
	return fmt.Sprintf(s.text[statement], "x'"+v.name+"'", "x'"+v.owner+"'", "x'"+v.holder+"'", v.number, v.seen, "x'"+v.lock+"'")
}

// namedLock returns the values for the statements about the named lock of a name.
// A hash makes it as short as the server wants it. If two names ever shared one, their
// waiters would wake up in vain.
func (s *statements) namedLock(name string) values {
	// All tables of a server share its named locks. The table may be given with
	// its schema or without.
	table := s.table[strings.LastIndexByte(s.table, '.')+1:]
	sum := sha256.Sum256([]byte(s.schema + "." + table + "\x00" + name))
	return values{name: hexOf(name), lock: hexOf("distlock:" + hexOf(string(sum[:20])))}
}

func hexOf(text string) string { return hex.EncodeToString([]byte(text)) }

// newOwner returns an owner that no claim has.
func newOwner() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails, by its documentation
	return hex.EncodeToString(b)
}
