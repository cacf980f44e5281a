package pglock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// What others do to the table, the rows and the sessions.

// Claims on rows that are locked for long share a part of the pool, and other locks are renewed.
func TestStuckRows(t *testing.T) {
	const ttl = 15 * time.Second // the server may be late by seconds
	name, admin := table(t), poolWith(t, nil)
	l := locker(t, poolLike(t, func(c *pgxpool.Config) { c.MaxConns = 4 }), name)
	for i := range 60 {
		testkit.Must(t, value[distlock.Lock](t)(l.TryLock(t.Context(), fmt.Sprint("s", i))).Unlock(t.Context()))
	}
	healthy := value[distlock.Lock](t)(l.TryLock(t.Context(), "healthy", distlock.TTL(ttl)))
	first := healthy.Deadline()
	tx := value[pgx.Tx](t)(admin.Begin(t.Context()))
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	value[any](t)(tx.Exec(t.Context(), "SELECT FROM "+name+" WHERE name LIKE 's%'::bytea FOR UPDATE"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 60 {
		go l.Lock(ctx, fmt.Sprint("s", i))
	}
	testkit.Until(t, "the lock has been renewed twice", func() bool {
		testkit.Must(t, healthy.Err())
		return healthy.Deadline().Sub(first) > ttl/2
	})
}

// While the table is locked, the server does not fill with requests that were given up.
func TestLockedTable(t *testing.T) {
	name, admin := table(t), poolWith(t, nil)
	l := value[*Locker](t)(Open(t.Context(), server(t).URL(), &Options{Table: name, MaxConns: 4}))
	defer l.Close()
	tx := value[pgx.Tx](t)(admin.Begin(t.Context()))
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	value[any](t)(tx.Exec(t.Context(), "LOCK TABLE "+name+" IN ACCESS EXCLUSIVE MODE"))
	for i := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := l.TryLock(ctx, fmt.Sprint("x", i)); err == nil {
			t.Error("granted")
		}
		cancel()
	}
	testkit.Until(t, "no more requests wait for the table than the pool has connections", func() bool {
		var n int
		testkit.Must(t, admin.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_locks JOIN pg_class c ON c.oid = relation WHERE NOT granted AND relname = $1", name).Scan(&n))
		return n <= 4
	})
}

// Open waits for a table that is locked, and does not fail for it.
func TestOpenWhileLocked(t *testing.T) {
	name, admin := table(t), poolWith(t, nil)
	tx := value[pgx.Tx](t)(admin.Begin(t.Context()))
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	value[any](t)(tx.Exec(t.Context(), "LOCK TABLE "+name+" IN ACCESS EXCLUSIVE MODE"))
	opened := make(chan error, 1)
	go func() {
		l, err := Open(t.Context(), server(t).URL(), &Options{Table: name})
		if err == nil {
			err = l.Close()
		}
		opened <- err
	}()
	for _, waits := range []bool{true, false} {
		testkit.Until(t, "a request waits for the table, and has given up", func() bool {
			var n int
			testkit.Must(t, admin.QueryRow(t.Context(),
				"SELECT count(*) FROM pg_locks JOIN pg_class c ON c.oid = relation WHERE NOT granted AND relname = $1", name).Scan(&n))
			return (n > 0) == waits
		})
	}
	testkit.Must(t, tx.Rollback(t.Context()))
	testkit.Must(t, <-opened)
}

// The end of a bound says what the server has said last, also if a request was then under way; of that it says nothing.
func TestLastAnswer(t *testing.T) {
	name, admin := table(t), poolWith(t, nil)
	l := value[*Locker](t)(Open(t.Context(), server(t).URL(), &Options{Table: name}))
	defer l.Close()
	d := storeOf(t, l)
	tx := value[pgx.Tx](t)(admin.Begin(t.Context()))
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	value[any](t)(tx.Exec(t.Context(), "LOCK TABLE "+name+" IN ACCESS EXCLUSIVE MODE"))
	limit := rowWait
	testkit.Until(t, "the server has answered within the bound", func() bool {
		limit *= 2
		err := driver.Bounded(t.Context(), "the server", limit, d.probe)
		silent, late := errors.AsType[*driver.NoAnswer](err)
		if !late || driver.FateOf(err) != driver.Unknown {
			t.Fatalf("fate %v: %v", driver.FateOf(err), err)
		}
		return hasCode(silent.Last, rowLocked) && strings.Contains(err.Error(), rowLocked)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	requests := 0
	err := driver.Insist(ctx, func() error {
		if requests++; requests > 1 {
			cancel()
		}
		return d.send(ctx, query{"SELECT FROM " + name, nil, nothing})
	})
	if !hasCode(err, rowLocked) || !errors.Is(err, context.Canceled) || driver.FateOf(err) != driver.NotSent {
		t.Errorf("fate %v: %v", driver.FateOf(err), err)
	}
}

// A grant that took too long is asked for again, and stands meanwhile: an error then does not say that nothing is left.
func TestGrantThatStands(t *testing.T) {
	name, admin := table(t), poolWith(t, nil)
	d := storeOf(t, locker(t, poolWith(t, nil), name))
	exec(t, admin, "CREATE OR REPLACE FUNCTION "+name+`_slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_sleep(0.6);
		WHILE NOT EXISTS (SELECT FROM pg_locks WHERE relation = TG_RELID AND mode = 'AccessExclusiveLock' AND NOT granted) LOOP
			PERFORM pg_sleep(0.01);
		END LOOP;
		RETURN NULL;
	END $$`)
	exec(t, admin, "CREATE TRIGGER slow AFTER INSERT ON "+name+" FOR EACH ROW EXECUTE FUNCTION "+name+"_slow()")
	c := d.Claim(driver.Request{Name: "y", Owner: strings.Repeat("ab", 16), TTL: time.Minute}).(*claim)
	renamed := make(chan struct{})
	go func() {
		defer close(renamed)
		testkit.Until(t, "the insert", func() bool {
			var n int
			err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks JOIN pg_class c ON c.oid = relation WHERE relname = $1 AND mode = 'RowExclusiveLock'", name).Scan(&n)
			return err == nil && n > 0
		})
		exec(t, admin, "ALTER TABLE "+name+" RENAME TO "+name+"_gone") // in line before the second request
	}()
	_, err := c.Try(t.Context())
	<-renamed
	if driver.FateOf(err) != driver.Unknown || !c.ambiguous {
		t.Errorf("fate %v, ambiguous %v: %v", driver.FateOf(err), c.ambiguous, err)
	}
}

// What the server refuses leaves nothing in this process.
func TestRefusedClaimsAreForgotten(t *testing.T) {
	name, admin := table(t), poolWith(t, nil)
	l := locker(t, poolWith(t, nil), name)
	d := storeOf(t, l)
	exec(t, admin, "ALTER TABLE "+name+" RENAME TO "+name+"_gone")
	for i := range 20 {
		if _, err := l.Lock(t.Context(), fmt.Sprint("x", i)); err == nil {
			t.Error("granted")
		}
	}
	mustBeForgotten(t, d)
}

// Nor does a claim that is given up after the name was let go of between its two statements.
func TestMovedClaimsAreForgotten(t *testing.T) {
	t.Parallel()
	name := table(t)
	holder, l := locker(t, poolWith(t, nil), name), locker(t, poolWith(t, nil), name)
	_, err := holder.TryLock(t.Context(), "x")
	testkit.Must(t, err)
	d := storeOf(t, l)
	d.text["held"] += " LIMIT 0"
	c := d.Claim(driver.Request{Name: "x", Owner: testkit.Owner(), TTL: time.Minute})
	if _, err := c.Try(t.Context()); !errors.Is(err, errMoved) {
		t.Errorf("got %v", err)
	}
	mustBeForgotten(t, d)
}

func mustBeForgotten(t *testing.T, d *store) {
	t.Helper()
	d.listener.mu.Lock()
	defer d.listener.mu.Unlock()
	if n := len(d.listener.waiting); n != 0 {
		t.Errorf("%d claims are kept", n)
	}
}

// waiters is how many claims are on the list of "x".
func waiters(t *testing.T, pool *pgxpool.Pool, table string) (n int) {
	testkit.Must(t, pool.QueryRow(t.Context(), "SELECT length(waiters) / 16 FROM "+table+" WHERE name = 'x'").Scan(&n))
	return n
}

// A late request of a claim that was undone is on no list: the next release would tell nobody.
func TestLateRequestIsNotListed(t *testing.T) {
	name, pool := table(t), poolWith(t, nil)
	l := locker(t, pool, name)
	value[distlock.Lock](t)(l.TryLock(t.Context(), "x"))
	c := claimOn(t, l)
	c.ambiguous = true // its Try has had no answer yet
	testkit.Must(t, c.Release(t.Context()))
	if _, err := claimOn(t, l).Try(t.Context()); err == nil || waiters(t, pool, name) != 0 {
		t.Errorf("late: %v, %d on the list", err, waiters(t, pool, name))
	}
}

// listen has a Locker begin to listen.
func listen(t *testing.T, l *Locker) {
	ctx, cancel := context.WithCancel(t.Context())
	held := value[distlock.Lock](t)(l.TryLock(ctx, "listens"))
	waited := make(chan error)
	go func() {
		_, err := l.Lock(ctx, "listens")
		waited <- err
	}()
	d := storeOf(t, l)
	testkit.Until(t, "it listens", func() bool {
		d.listener.mu.Lock()
		defer d.listener.mu.Unlock()
		return d.listener.live
	})
	cancel()
	<-waited
	testkit.Must(t, held.Unlock(t.Context()))
}

// Waiters that died have one hand-off wait, and not one each.
func TestDeadWaiters(t *testing.T) {
	name, pool := table(t), poolWith(t, nil)
	l, other := locker(t, pool, name), locker(t, pool, name)
	held := value[distlock.Lock](t)(l.TryLock(t.Context(), "x"))
	for range 5 {
		exec(t, pool, "UPDATE "+name+" SET waiters = waiters || decode(md5(random()::text), 'hex')")
	}
	listen(t, other) // now: a waiter that begins to listen looks again then, which may be after the release
	got := make(chan distlock.Lock, 1)
	go func() {
		h, err := other.Lock(t.Context(), "x", distlock.TTL(time.Hour)) // it looks again after ten seconds
		testkit.Should(t, err)
		got <- h
	}()
	testkit.Until(t, "it waits", func() bool { return waiters(t, pool, name) == 6 })
	testkit.Must(t, held.Unlock(t.Context()))
	exec(t, pool, "UPDATE "+name+" SET expires = expires - interval '2 seconds'")
	storeOf(t, other).listener.wakeAll()
	<-got
	if n := waiters(t, pool, name); n != 0 {
		t.Errorf("%d are on the list", n)
	}
}

// Waiters that died while a lock is held for long leave room on the list for those that live.
func TestDeadWaitersMakeRoom(t *testing.T) {
	name, pool := table(t), poolWith(t, nil)
	l := locker(t, pool, name)
	value[distlock.Lock](t)(l.TryLock(t.Context(), "x"))
	exec(t, pool, "UPDATE "+name+" SET waiters = decode(repeat('ab', 1024), 'hex'), acquired = acquired - interval '1 hour'")
	listen(t, l)
	c := claimOn(t, l)
	_, err := c.Try(t.Context())
	if held, ok := errors.AsType[*driver.Held](err); !ok || held.NoWake || waiters(t, pool, name) != 64 {
		t.Errorf("%v, with %d on the list", err, waiters(t, pool, name))
	}
	// Others have taken its place: it polls, and takes that of none of them: they may be alive.
	exec(t, pool, "UPDATE "+name+" SET waiters = decode(repeat('ef', 1024), 'hex')")
	_, err = c.Try(t.Context())
	var same bool
	testkit.Must(t, pool.QueryRow(t.Context(), "SELECT waiters = decode(repeat('ef', 1024), 'hex') FROM "+name+" WHERE name = 'x'").Scan(&same))
	if held, ok := errors.AsType[*driver.Held](err); !ok || !held.NoWake || !same {
		t.Errorf("%v, the list of others is as it was: %v", err, same)
	}
}

// A release that has to wait for other commits that notify does so: no row was locked for long.
func TestNotifyWaits(t *testing.T) {
	name, pool := table(t), poolWith(t, nil)
	exec(t, pool, "CREATE SCHEMA IF NOT EXISTS "+name+"_slow")
	exec(t, pool, "CREATE OR REPLACE FUNCTION "+name+`_slow.pg_notify(text, text) RETURNS text LANGUAGE sql AS
		$$ SELECT current_setting('lock_timeout') $$`)
	l := locker(t, poolWith(t, map[string]string{"search_path": name + "_slow, pg_catalog, public"}), name)
	h := value[distlock.Lock](t)(l.TryLock(t.Context(), "x"))
	exec(t, pool, "UPDATE "+name+" SET waiters = decode(repeat('ab', 16), 'hex')")
	held, _ := distlock.As[*Lock](h)
	var answer bool
	var told string
	testkit.Must(t, held.claim.store.send(t.Context(), query{held.claim.store.text["release"], []any{held.claim.name(), held.claim.owner},
		func(row pgx.Rows) error { return row.Scan(&answer, &told) }}))
	if told != "2s2s" {
		t.Errorf("the commit was bounded by %q", told)
	}
}

// The server notices soon that a client is gone which has sent half of a request.
func TestKeepAlive(t *testing.T) {
	name := table(t)
	l := value[*Locker](t)(Open(t.Context(), server(t).URL(), &Options{Table: name}))
	defer l.Close()
	var idle string
	testkit.Must(t, storeOf(t, l).pool.QueryRow(t.Context(), "SHOW tcp_keepalives_idle").Scan(&idle))
	if idle != "10" {
		t.Errorf("keep-alives after %q seconds", idle)
	}
}

// A column that rounds a lease down is refused.
func TestPrecision(t *testing.T) {
	name := table(t)
	exec(t, poolWith(t, nil), "ALTER TABLE "+name+" ALTER expires TYPE timestamptz(0)")
	if _, err := Open(t.Context(), server(t).URL(), &Options{Table: name}); err == nil || !strings.Contains(err.Error(), "expires timestamp(0)") {
		t.Error(err)
	}
}

// Parameters have types also where the client sends none.
func TestSimpleProtocol(t *testing.T) {
	name := table(t)
	l := locker(t, poolLike(t, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		c.ConnConfig.RuntimeParams["client_encoding"] = "UTF8" // which the library demands
	}), name)
	h := value[distlock.Lock](t)(l.TryLock(t.Context(), "x\x00y", distlock.Holder("me\x00")))
	if _, err := l.TryLock(t.Context(), "x\x00y"); !errors.Is(err, distlock.ErrHeld) {
		t.Error(err)
	}
	if all := value[[]distlock.Status](t)(l.List(t.Context(), "x\x00")); len(all) != 1 || all[0].Holder != "me\x00" {
		t.Errorf("%+v", all)
	}
	testkit.Must(t, h.Unlock(t.Context()))
}

// If the server takes no notifications, a lock is released all the same.
func TestFullQueue(t *testing.T) {
	name, pool := table(t), poolWith(t, nil)
	exec(t, pool, "CREATE SCHEMA IF NOT EXISTS "+name+"_full")
	exec(t, pool, "CREATE OR REPLACE FUNCTION "+name+`_full.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END $$`)
	l, other := locker(t, poolWith(t, map[string]string{"search_path": name + "_full, pg_catalog, public"}), name), locker(t, pool, name)
	h := value[distlock.Lock](t)(l.TryLock(t.Context(), "x"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go other.Lock(ctx, "x")
	testkit.Until(t, "it waits", func() bool { return waiters(t, pool, name) == 1 })
	held, _ := distlock.As[*Lock](h)
	c := held.claim
	answered := func(pgx.Rows) error { return errors.New("the server has answered with a row") }
	// The server has undone it for certain: what comes next about the name need not wait for it.
	if err := c.store.send(t.Context(), query{c.store.text["release"], []any{c.name(), c.owner}, answered}); !hasCode(err, queueFull) || driver.FateOf(err) != driver.Again {
		t.Errorf("fate %v: %v", driver.FateOf(err), err)
	}
	testkit.Must(t, h.Unlock(t.Context()))
}

// What the server has answered within a transaction that it then refused to commit is not renewed, whatever comes next.
func TestRefusedCommit(t *testing.T) {
	name, pool := table(t), poolWith(t, nil)
	l := locker(t, pool, name)
	d := storeOf(t, l)
	lock := value[distlock.Lock](t)(l.TryLock(t.Context(), "x", distlock.TTL(time.Hour), distlock.NoRenewal()))
	trigger := func(what, when, does string) {
		exec(t, pool, "CREATE OR REPLACE FUNCTION "+name+"_"+what+"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF current_setting('"+name+"."+what+
			"', true) = 'on' THEN "+does+"; END IF; RETURN NEW; END $$")
		exec(t, pool, fmt.Sprintf("CREATE %s FOR EACH ROW EXECUTE FUNCTION %s_%s()", fmt.Sprintf(when, name), name, what))
	}
	trigger("full", "CONSTRAINT TRIGGER a AFTER UPDATE ON %s DEFERRABLE INITIALLY DEFERRED", "RAISE EXCEPTION 'no space' USING ERRCODE = '53100'")
	trigger("blind", "TRIGGER b BEFORE UPDATE ON %s", "RETURN NULL")
	d.renewals = poolWith(t, map[string]string{name + ".full": "on"}) // refuses at the end
	d.pool = poolWith(t, map[string]string{name + ".blind": "on"})    // finds nothing to renew
	if err := lock.Extend(t.Context(), time.Hour); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("nothing was renewed: %v", err)
	}
}
