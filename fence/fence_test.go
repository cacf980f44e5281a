package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/distlock-go/distlock/fence"
)

func TestMemory(t *testing.T) {
	var m fence.Memory
	for i, step := range []struct {
		write bool
		token int64
		want  error
	}{
		{true, 5, nil},
		{true, 5, nil}, // a holder may write again
		{true, 4, fence.ErrStale},
		{false, 4, fence.ErrStale},
		{false, 8, nil},
		{false, 7, nil}, // a reader beside another
		{true, 7, fence.ErrStale},
		{true, 8, nil},
		{false, 7, fence.ErrStale},
		{true, 9, nil},
		{false, 9, nil},
	} {
		f := m.Read
		if step.write {
			f = m.Write
		}
		if err := f("x", step.token); !errors.Is(err, step.want) {
			t.Errorf("step %d, write %v with token %d: %v, want %v", i, step.write, step.token, err, step.want)
		}
	}
	if err := m.Write("y", 1); err != nil {
		t.Errorf("another name: %v", err)
	}
}

// answer is a database that gives one answer to everything.
type answer struct {
	rows int64
	err  error // of ExecContext
	none error // of RowsAffected
}

func (a answer) ExecContext(context.Context, string, ...any) (sql.Result, error) { return a, a.err }
func (a answer) RowsAffected() (int64, error)                                    { return a.rows, a.none }
func (a answer) LastInsertId() (int64, error)                                    { return 0, nil }

func TestExec(t *testing.T) {
	down := errors.New("the server is down")
	for _, tc := range []struct {
		a    answer
		want error
	}{
		{answer{rows: 1}, nil},
		{answer{rows: 7}, nil},
		{answer{}, fence.ErrStale},
		{answer{rows: 1, err: down}, down},
		{answer{rows: 1, none: down}, down},
	} {
		if err := fence.Exec(t.Context(), tc.a, "UPDATE"); !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v, want %v", tc.a, err, tc.want)
		}
	}
}

func ExampleMemory() {
	var account fence.Memory
	fmt.Println(account.Write("alice", 33)) // by the holder with token 33
	fmt.Println(account.Write("alice", 34)) // by the next holder
	fmt.Println(account.Write("alice", 33)) // by the first, which was stopped meanwhile
	// Output:
	// <nil>
	// <nil>
	// fence: refused: a later holder of the lock has been here: "alice" was shown the token 34, this is 33
}
