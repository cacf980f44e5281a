package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/internal/turns"
)

// feed answers every statement with what it makes of the bytes that it has, and with nothing once
// there are none left. It is for the decoding of answers alone: no store behaves like that.
type feed struct {
	mu   sync.Mutex
	data []byte
}

func (f *feed) number() (n byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.data) > 0 {
		n, f.data = f.data[0], f.data[1:]
	}
	return n
}

func (f *feed) int64() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b [8]byte
	f.data = f.data[copy(b[:], f.data):]
	return int64(binary.BigEndian.Uint64(b[:]))
}

func (f *feed) value() sqldriver.Value {
	switch f.number() % 6 {
	case 0:
		return nil
	case 1:
		return f.int64()
	case 2:
		return float64(f.int64())
	case 3:
		return f.int64()%2 == 0
	case 4:
		return time.UnixMicro(f.int64())
	}
	text := make([]byte, f.number()%20)
	for i := range text {
		text[i] = f.number()
	}
	return text
}

func (f *feed) err() error {
	if f.number()%8 != 7 {
		return nil
	}
	all := append(append([]uint16{errNoTable, 1105}, undone...), readOnly...)
	return &mysql.MySQLError{Number: all[int(f.number())%len(all)]}
}

// Connect implements sqldriver.Connector.
func (f *feed) Connect(context.Context) (sqldriver.Conn, error) { return feedConn{f}, nil }
func (f *feed) Driver() sqldriver.Driver                        { return nil }

type feedConn struct{ *feed }

func (c feedConn) Prepare(string) (sqldriver.Stmt, error) { return feedStmt(c), nil }
func (c feedConn) Begin() (sqldriver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c feedConn) Close() error                           { return nil }

type feedStmt struct{ *feed }

func (s feedStmt) NumInput() int { return -1 }
func (s feedStmt) Close() error  { return nil }
func (s feedStmt) Exec([]sqldriver.Value) (sqldriver.Result, error) {
	return feedResult{s.int64(), s.int64()}, s.err()
}
func (s feedStmt) Query([]sqldriver.Value) (sqldriver.Rows, error) {
	return feedRows{s.feed, int(s.number() % 8)}, s.err()
}

type feedResult struct{ answer, rows int64 }

func (r feedResult) LastInsertId() (int64, error) { return r.answer, nil }
func (r feedResult) RowsAffected() (int64, error) { return r.rows, nil }

type feedRows struct {
	*feed
	columns int
}

func (r feedRows) Columns() []string { return make([]string, r.columns) }
func (r feedRows) Close() error      { return nil }
func (r feedRows) Next(into []sqldriver.Value) error {
	if r.number()%4 == 0 {
		return io.EOF
	}
	for i := range into {
		into[i] = r.value()
	}
	return r.err()
}

// FuzzAnswers has a server answer with anything: nothing of that may end the process, or be taken
// for what it cannot be.
func FuzzAnswers(f *testing.F) {
	seed := func(numbers ...int64) {
		var b []byte
		for _, n := range numbers {
			b = binary.BigEndian.AppendUint64(b, uint64(n))
		}
		f.Add(b)
	}
	for _, n := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64, math.MinInt64 + 1, 1 << 60} {
		seed(n, n, n, n, n, n, n, n, n, n, n, n)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		server := &feed{data: data}
		d := fedStore(t, server)
		c := d.claimOn("n", time.Minute)
		g, err := c.Try(t.Context())
		var held *distlock.HeldError
		switch {
		case errors.As(err, &held) && held.Remaining < 0:
			t.Errorf("Try: held for %v", held.Remaining)
		case err == nil && (g.Token == 0 || g.TTL <= 0):
			t.Errorf("Try: %+v", g)
		}
		_ = c.Release(t.Context())
		batch := make([]driver.Renewal, 3)
		for i := range batch {
			batch[i] = driver.Renewal{Claim: d.claimOn(fmt.Sprint(i), time.Minute), TTL: time.Minute}
		}
		d.Renew(t.Context(), batch)
		for _, r := range batch {
			if (r.Err == nil) != (r.Grant.TTL == time.Minute) {
				t.Errorf("Renew: %+v, %v", r.Grant, r.Err)
			}
		}
		list, err := d.List(t.Context(), "")
		for _, st := range list {
			if err == nil && st.Held != (st.Remaining > 0) {
				t.Errorf("List: %+v", st)
			}
		}
		_, _ = d.Inspect(t.Context(), "n")
		_ = d.Break(t.Context(), "n", 1)
		_, _ = d.Sweep(t.Context(), time.Hour)
		_ = d.check(t.Context())
	})
}

// fedStore returns a store on a server of that kind.
func fedStore(t *testing.T, server *feed) *store {
	t.Helper()
	db := sql.OpenDB(server)
	t.Cleanup(func() { db.Close() })
	statements, err := newStatements(DefaultTable)
	testkit.Must(t, err)
	d := &store{db: db, sql: statements, turns: turns.New(4, time.Second, func(error) bool { return false }), renewals: newRenewals(db, db, renewConns)}
	d.renewals.skip = server.number()%2 == 0
	for statement, p := range map[string]**prepared{"acquire": &d.acquire, "take": &d.take, "release": &d.release} {
		if *p, err = d.parse(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return d
}
