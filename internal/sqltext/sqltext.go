// Package sqltext has what the drivers for SQL do alike with their statements and the name of their table.
package sqltext

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/distlock-go/distlock"
)

// Read returns the texts of sql/*.sql by the names of their files, without the lines that are comments.
func Read(files embed.FS) map[string]string {
	texts := make(map[string]string)
	names, _ := fs.Glob(files, "sql/*.sql") // they are part of the program
	for _, name := range names {
		raw, _ := files.ReadFile(name)
		lines := slices.DeleteFunc(strings.Split(string(raw), "\n"), func(line string) bool { return strings.HasPrefix(line, "--") })
		texts[strings.TrimSuffix(path.Base(name), ".sql")] = strings.TrimSpace(strings.Join(lines, "\n"))
	}
	return texts
}

// Table takes apart the name of a table, given as "table" or "schema.table", if it has the form of valid; allowed says that in words.
func Table(name string, valid *regexp.Regexp, allowed string) (schema, table string, err error) {
	m := valid.FindStringSubmatch(name)
	if m == nil {
		return "", "", fmt.Errorf("%w: the table is %q, allowed are %s at most, not beginning with a digit, as table or schema.table",
			distlock.ErrInvalid, name, allowed)
	}
	return m[1], m[2], nil
}
