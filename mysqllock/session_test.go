package mysqllock

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSessions runs the life of a lock under every kind of session that a user's
// pool may have: none of it may make a difference. DISTLOCK_SESSIONS=all has it run under all
// combinations of settings, not only all pairs.
func TestSessions(t *testing.T) {
	t.Parallel()
	modes := []string{
		"''",
		"'STRICT_ALL_TABLES,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_ZERO_DATE'",
		"'PIPES_AS_CONCAT,HIGH_NOT_PRECEDENCE,NO_UNSIGNED_SUBTRACTION,ANSI'",
	}
	if strings.Contains(server(t).Version(), "MariaDB") {
		modes = append(modes, "'SIMULTANEOUS_ASSIGNMENT'", "'ORACLE,EMPTY_STRING_IS_NULL'")
	}
	zones := []string{"'+00:00'", "'+12:45'", "'-12:00'", "'SYSTEM'"}
	levels := []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"}
	flags := []string{"found=false parse=false", "found=false parse=true", "found=true parse=false", "found=true parse=true"}
	table := freshTable(t)
	for _, k := range sessions(os.Getenv("DISTLOCK_SESSIONS") == "all", modes, zones, levels, flags) {
		t.Run(strings.Join(k, " "), func(t *testing.T) {
			c := config(t, server(t).URL())
			c.ClientFoundRows, c.ParseTime = strings.Contains(k[3], "found=true"), strings.Contains(k[3], "parse=true")
			c.Loc = time.FixedZone("east", 9*3600)
			c.Params = map[string]string{"sql_mode": k[0], "time_zone": k[1], "sql_select_limit": "1",
				"collation_connection": "latin1_general_ci"}
			db := poolOf(t, c)
			db.SetMaxOpenConns(1) // so that the next statement sets it for all
			if _, err := db.Exec("SET SESSION TRANSACTION ISOLATION LEVEL " + k[2]); err != nil {
				t.Fatal(err)
			}
			testLife(t, testDriver(t, db, table))
		})
	}
}

// sessions returns combinations of settings: all of them, or so many that every two values of
// different settings come together in one.
func sessions(all bool, settings ...[]string) (chosen [][]string) {
	combinations := [][]string{nil}
	for _, values := range settings {
		var longer [][]string
		for _, c := range combinations {
			for _, v := range values {
				longer = append(longer, append(slices.Clone(c), v))
			}
		}
		combinations = longer
	}
	seen := make(map[[2]string]bool)
	for _, c := range combinations {
		wanted := all
		for i := range c {
			for j := range i {
				pair := [2]string{c[j], c[i]}
				wanted = wanted || !seen[pair]
			}
		}
		if !wanted {
			continue
		}
		for i := range c {
			for j := range i {
				seen[[2]string{c[j], c[i]}] = true
			}
		}
		chosen = append(chosen, c)
	}
	return chosen
}
