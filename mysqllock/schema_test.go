package mysqllock

import (
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestSchemaStays has somebody else leave the connections of the pool in another schema, with such a table as well. All that
// is asked goes to the first all the same.
func TestSchemaStays(t *testing.T) {
	t.Parallel()
	db, table := adminPool(t), freshTable(t)
	other := "other`" + testkit.Owner()[:8] // the way MySQL quotes a name is known
	quoted := "`other``" + other[6:] + "`"
	_, err := db.Exec("CREATE DATABASE " + quoted)
	testkit.Must(t, err)
	t.Cleanup(func() { _, err := db.Exec("DROP DATABASE " + quoted); testkit.Should(t, err) })
	first, second := lentDriver(t, db, table), lentDriver(t, db, table)
	held, rival := first.claimOn("n", time.Minute), second.claimOn("n", time.Minute)
	grants(t, held)

	db.SetMaxIdleConns(1)
	db.SetMaxOpenConns(1)
	_, err = db.Exec("USE " + quoted)
	testkit.Must(t, err)
	there, err := newStatements(table)
	testkit.Must(t, err)
	_, err = db.Exec(there.text["schema"])
	testkit.Must(t, err)
	var now string
	testkit.Must(t, db.QueryRow("SELECT DATABASE()").Scan(&now))
	if now != other {
		t.Fatalf("the connection is in %q, want %q", now, other)
	}
	_, err = rival.Try(t.Context())
	wantError(t, "Try of a held name", err, distlock.ErrHeld)
	releases(t, held)
	grants(t, rival)

	// A driver that is made there has its table there.
	third := lentDriver(t, db, table)
	grants(t, third.claimOn("n", time.Minute))
	releases(t, rival)
}
