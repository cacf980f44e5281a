package mysqllock

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// testLife takes one name through everything that can happen to it.
func testLife(t *testing.T, d *store) {
	const ttl = 20 * time.Second
	// No sql_mode, charset or escape may change a name.
	name := testkit.Owner() + "a'b\\\"c`%[1]s{name}_% \x00\u00f6\U0001F512\u00a0"
	a, b := d.claimOn(name, ttl), d.claimOn(name, ttl)

	first := grants(t, a)
	for range 2 { // by the upsert, and by the plain update first
		// Not by Try: that raises the token of a grant that took long.
		var again driver.Grant
		if err := repeated(func() (err error) { again, err = a.try(t.Context()); return err }); err != nil || again.Token != first.Token {
			t.Errorf("the same claim got the token %d, and then %d, %v", first.Token, again.Token, err)
		}
		d.freed.Set(name, freedFor)
	}
	if left := refuses(t, b); left <= 0 || left > ttl {
		t.Errorf("the lease of %v has %v left", ttl, left)
	}
	if _, err := a.Renew(t.Context(), ttl); err != nil {
		t.Errorf("Renew: %v", err)
	}
	// Longer than any renewal that follows: those change nothing, and are no loss.
	if _, err := a.Renew(t.Context(), 10*ttl); err != nil {
		t.Errorf("Renew for longer: %v", err)
	}
	for range 3 {
		if _, err := a.Renew(t.Context(), ttl); err != nil {
			t.Errorf("Renew that changes nothing: %v", err)
		}
	}
	if left := refuses(t, b); left <= 9*ttl || left > 10*ttl {
		t.Errorf("after renewals for %v and then %v, %v are left", 10*ttl, ttl, left)
	}
	for _, again := range []bool{false, true} { // as if the reply to the first had been lost, and one to Try
		a.won, a.ambiguous = true, again
		if err := a.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	wantError(t, "Renew after the release", renewError(t, a), distlock.ErrLost)

	second := grants(t, b)
	if second.Token <= first.Token {
		t.Errorf("tokens %d, %d do not rise", first.Token, second.Token)
	}
	a.won = true
	wantError(t, "Release after another's grant", a.Release(t.Context()), distlock.ErrLost)
	expire(t, d, name)
	wantError(t, "Renew after the expiry", renewError(t, b), distlock.ErrLost)
	for range 2 {
		wantError(t, "Release after the expiry", b.Release(t.Context()), distlock.ErrLost)
	}
	c := d.claimOn(name, ttl)
	third := grants(t, c)
	if third.Token <= second.Token {
		t.Errorf("tokens %d, %d do not rise over an expiry", second.Token, third.Token)
	}
	wantError(t, "Release by the former holder", b.Release(t.Context()), distlock.ErrLost)
	refuses(t, d.claimOn(name, ttl))
	if err := c.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
	silent := d.claimOn(testkit.Owner(), ttl)
	silent.request.Holder = ""
	for range 2 { // the name is new, and then free
		grants(t, silent)
		if err := silent.Release(t.Context()); err != nil {
			t.Errorf("Release without a holder's text: %v", err)
		}
	}
	testBatch(t, d)
	testOperators(t, d)
}

func renewError(t *testing.T, c *claim) error {
	t.Helper()
	_, err := c.Renew(t.Context(), c.request.TTL)
	return err
}

// testBatch renews several locks; some of them are gone.
func testBatch(t *testing.T, d *store) {
	var batch []driver.Renewal
	for i := range 6 {
		c := d.claimOn(fmt.Sprint(testkit.Owner(), i), 20*time.Second)
		grants(t, c)
		batch = append(batch, driver.Renewal{Claim: c, TTL: time.Duration(30+i%2*30) * time.Second})
	}
	d.Renew(t.Context(), batch)
	for i, r := range batch {
		if r.Err != nil || r.Grant.TTL != r.TTL {
			t.Errorf("renewal %d: %+v", i, r)
		}
		left := refuses(t, d.claimOn(r.Claim.(*claim).request.Name, time.Second))
		if left > r.TTL || left < r.TTL-10*time.Second {
			t.Errorf("renewal %d for %v left %v", i, r.TTL, left)
		}
	}
	lost := []driver.Claim{batch[1].Claim, batch[4].Claim}
	expire(t, d, lost[0].(*claim).request.Name)
	testkit.Should(t, breakSeen(t.Context(), d, lost[1].(*claim).request.Name))
	batch = unanswered(batch)
	d.Renew(t.Context(), batch)
	for i, r := range batch {
		if gone := slices.Contains(lost, r.Claim); gone != errors.Is(r.Err, distlock.ErrLost) || !gone && r.Err != nil {
			t.Errorf("renewal %d after the loss of two: %v", i, r.Err)
		}
	}
}

// testOperators inspects, lists and breaks.
func testOperators(t *testing.T, d *store) {
	prefix := testkit.Owner()
	wantError(t, "Break of what nobody holds", breakSeen(t.Context(), d, prefix), distlock.ErrLost)
	for _, suffix := range []string{"/b", "/a", "/%"} {
		grants(t, d.claimOn(prefix+suffix, 20*time.Second))
	}
	holder := d.claimOn(prefix+"/c", 20*time.Second)
	holder.request.Holder = "a\x00b\n\x00"
	g := grants(t, holder)

	now := time.Now()
	st, err := d.Inspect(t.Context(), prefix+"/c")
	if err != nil || !st.Held || st.Holder != holder.request.Holder || st.Token != g.Token || st.Waiters != -1 ||
		st.Remaining <= 0 || st.Remaining > 20*time.Second || st.AcquiredAt.Before(now.Add(-time.Minute)) || st.AcquiredAt.After(now.Add(time.Minute)) {
		t.Errorf("Inspect: %+v, %v", st, err)
	}
	if err := breakSeen(t.Context(), d, prefix+"/c"); err != nil {
		t.Errorf("Break: %v", err)
	}
	st, err = d.Inspect(t.Context(), prefix+"/c")
	if err != nil || st.Held || st.Token != g.Token {
		t.Errorf("Inspect after Break: %+v, %v", st, err)
	}
	wantError(t, "Release after Break", holder.Release(t.Context()), distlock.ErrLost)
	found, err := d.List(t.Context(), prefix+"/")
	if err != nil || len(found) != 3 || found[0].Name != prefix+"/%" || found[2].Name != prefix+"/b" {
		t.Errorf("List: %+v, %v", found, err)
	}
	if all, err := d.List(t.Context(), ""); err != nil || len(all) <= len(found) {
		t.Errorf("List of all: %d names, %v, want more than the %d of a prefix", len(all), err, len(found))
	}
	if st, err := d.Inspect(t.Context(), prefix); err != nil || st.Held || st.Name != prefix {
		t.Errorf("Inspect of an unknown name: %+v, %v", st, err)
	}
}

// TestListReadsNoMore lists a prefix before many other names: the server does not read those.
func TestListReadsNoMore(t *testing.T) {
	t.Parallel()
	db := pool(t, nil)
	db.SetMaxOpenConns(1)
	d := testDriver(t, db, freshTable(t))
	for _, name := range []string{"a/1", "a/\U0010FFFF", "b"} {
		grants(t, d.claimOn(name, time.Minute))
	}
	for rows := 1; rows < 1000; rows *= 2 {
		_, err := db.Exec(fmt.Sprintf("INSERT INTO %[1]s SELECT CONCAT(name, '+%[2]d'), owner, token, expires, acquired, holder, undone, waited, wakes "+
			"FROM %[1]s WHERE name LIKE 'b%%'", d.sql.table, rows))
		testkit.Must(t, err)
	}
	read := func() (n int) {
		var name string
		testkit.Must(t, db.QueryRow("SHOW SESSION STATUS LIKE 'Handler_read_next'").Scan(&name, &n))
		return n
	}
	before := read()
	found, err := d.List(t.Context(), "a/")
	if err != nil || len(found) != 2 {
		t.Errorf("List: %+v, %v, want two", found, err)
	}
	if n := read() - before; n > 100 {
		t.Errorf("the server has read %d rows for two", n)
	}
}

// TestRoundTrips counts what the server was asked.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	db := pool(t, nil)
	db.SetMaxOpenConns(1)
	d := testDriver(t, db, freshTable(t))
	questions := func() (n int) {
		var name string
		testkit.Must(t, db.QueryRow("SHOW SESSION STATUS LIKE 'Questions'").Scan(&name, &n))
		return n
	}
	cost := func(what string, want int, f func()) {
		t.Helper()
		before, began := questions(), time.Now()
		f()
		took := time.Since(began)
		n := questions() - before - 1
		// A grant that took long is asked for again; see Try.
		if again := n == want+1 && took > minIdle/2; n != want && !again {
			t.Errorf("%s took %d requests, want %d", what, n, want)
		}
	}
	a, b, c := d.claimOn("n", time.Minute), d.claimOn("n", time.Minute), d.claimOn("n", time.Minute)
	cost("taking a new name", 1, func() { grants(t, a) })
	cost("finding it held", 1, func() { refuses(t, b) })
	cost("releasing nothing", 0, func() { _ = b.Release(t.Context()) })
	cost("renewing", 1, func() { _ = renewError(t, a) })
	cost("releasing", 1, func() { _ = a.Release(t.Context()) })
	cost("taking what it gave back", 1, func() { grants(t, b) })
	cost("releasing", 1, func() { _ = b.Release(t.Context()) })
	d.freed.Remove("n")
	cost("taking what another gave back", 1, func() { grants(t, b) })
	d.freed.Set("n", freedFor)
	cost("finding what it gave back held", 2, func() { refuses(t, c) })
	cost("finding it held again", 1, func() { refuses(t, c) })
	expire(t, d, "n")
	cost("taking an expired one", 1, func() { grants(t, c) })

	// As many as a batch may have: ten thousand locks are renewed by twenty of these.
	var batch []driver.Renewal
	for i := range 500 {
		c := d.claimOn(fmt.Sprint("batch", i), time.Minute)
		grants(t, c)
		batch = append(batch, driver.Renewal{Claim: c, TTL: time.Minute})
	}
	cost("renewing 500", 1, func() { d.Renew(t.Context(), batch) })
	for _, r := range batch {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

// TestClock compares the statement's clock with the real one at instants that some
// zones have twice, or not at all.
func TestClock(t *testing.T) {
	t.Parallel()
	admin := adminPool(t)
	// A zone whose clocks go forward an hour at 1,000,000,000 and back at 1,100,000,000.
	const zone = "Test/Fold"
	const id = 90001
	for _, statement := range []string{
		fmt.Sprintf("REPLACE INTO mysql.time_zone VALUES (%d, 'N')", id),
		fmt.Sprintf("REPLACE INTO mysql.time_zone_name VALUES ('%s', %d)", zone, id),
		fmt.Sprintf("REPLACE INTO mysql.time_zone_transition_type VALUES (%d, 0, 0, 0, 'A'), (%d, 1, 3600, 1, 'B')", id, id),
		fmt.Sprintf("REPLACE INTO mysql.time_zone_transition VALUES (%d, 0, 0), (%d, 1000000000, 1), (%d, 1100000000, 0)", id, id, id),
	} {
		if _, err := admin.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newStatements(DefaultTable)
	testkit.Must(t, err)
	db := pool(t, map[string]string{"time_zone": "'" + zone + "'"})
	db.SetMaxOpenConns(1)
	for _, moment := range []int64{999_999_999, 1_000_000_000, 1_000_001_800, 1_099_996_500, 1_099_999_999, 1_100_000_000, 1_100_001_800, 1_100_003_600} {
		if _, err := db.Exec(fmt.Sprintf("SET timestamp = %d.25", moment)); err != nil {
			t.Fatal(err)
		}
		var now int64
		testkit.Must(t, db.QueryRow("SELECT "+s.text["now"]).Scan(&now))
		if want := moment*1e6 + 250_000; now != want {
			t.Errorf("at %d the clock of the statements says %d, want %d", moment, now, want)
		}
	}
}

// TestSweep removes idle rows, and nothing but those.
func TestSweep(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, map[string]string{"sql_select_limit": "1"}), freshTable(t))
	idle := d.claimOn("idle", time.Minute)
	last := grants(t, idle).Token
	releases(t, idle)
	rows := 1
	for others := pool(t, nil); rows < 1234; rows *= 2 { // as if many more had been held then: more than two batches
		_, err := others.Exec(fmt.Sprintf("INSERT INTO %[1]s SELECT CONCAT(name, '+%[2]d'), owner, token, expires, acquired, holder, undone, waited, wakes "+
			"FROM %[1]s WHERE name LIKE 'idle%%'", d.sql.table, rows))
		testkit.Must(t, err)
	}
	held := d.claimOn("held", time.Minute)
	grants(t, held)
	expired := d.claimOn("expired", time.Minute)
	grants(t, expired)
	expire(t, d, "expired")
	ahead := d.claimOn("ahead", time.Minute)
	grants(t, ahead)
	testkit.Must(t, ahead.Release(t.Context()))
	// As if the clock had been an hour ahead when the token was given out.
	if _, err := d.db.Exec("UPDATE " + d.sql.table + " SET token = token + 3600 * 1000000 WHERE name = 'ahead'"); err != nil {
		t.Fatal(err)
	}

	// A lock that begins now may have read the clock before the sweep did.
	if _, err := d.db.Exec("UPDATE " + d.sql.table + " SET expires = 1 WHERE name = 'expired'"); err != nil {
		t.Fatal(err)
	}
	if n, err := d.Sweep(t.Context(), time.Hour); n != 0 || err != nil {
		t.Errorf("Sweep of what was idle for an hour removed %d, %v, want 0", n, err)
	}
	ageFree(t, d)
	if n, err := d.Sweep(t.Context(), time.Microsecond); n != rows+1 || err != nil {
		t.Errorf("Sweep removed %d, %v, want %d", n, err, rows+1)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("Release after Sweep: %v", err)
	}
	for _, name := range []string{"idle", "idle+1", "idle+512+1024"} {
		if g := grants(t, d.claimOn(name, time.Minute)); g.Token <= last {
			t.Errorf("%s: token %d before the sweep, %d after it", name, last, g.Token)
		}
	}
	var token int64
	testkit.Must(t, d.db.QueryRow("SELECT token FROM "+d.sql.table+" WHERE name = 'ahead'").Scan(&token))
	if g := grants(t, d.claimOn("ahead", time.Minute)); g.Token <= token {
		t.Errorf("a token ahead of the clock fell from %d to %d", token, g.Token)
	}
}
