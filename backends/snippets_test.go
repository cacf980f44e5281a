package backends_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/fence"
	"github.com/distlock-go/distlock/internal/testkit"
)

// What readers copy first has to compile: the bodies of these functions are the
// snippets of the documentation, letter by letter, as TestSnippets sees to.
var _ = []any{snippetLock, snippetFenced, snippetWrite, snippetConfig}

func snippetLock(ctx context.Context, url string, payUnlessPaid func(context.Context, int) error) error {
	locker, err := backends.Open(ctx, url) // redis://, mysql://, postgres://, zk://, etcd:// or mem://; one for the process
	if err != nil {
		return err
	}
	defer locker.Close()

	lock, err := locker.Lock(ctx, "orders/42") // waits; TryLock answers at once
	if err != nil {
		return err
	}
	defer lock.Unlock(ctx)
	return payUnlessPaid(ctx, 42) // nobody else pays it now, but the holder before may have
}

func snippetFenced(ctx context.Context, db *sql.DB, lock distlock.Lock) error {
	res, err := db.ExecContext(ctx, // changes no row if a later holder has written
		`UPDATE orders SET state = 'paid', fence = ? WHERE id = 42 AND fence <= ?`, lock.Token(), lock.Token())
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return cmp.Or(err, errors.New("order 42 was not written: a later holder has written it, or it does not exist"))
	}
	return nil
}

func snippetDo(ctx context.Context, locker distlock.Locker, payUnlessPaid func(context.Context, int, int64) error) error {
	return distlock.Do(ctx, locker, "orders/42", func(ctx context.Context) error {
		lock, _ := distlock.FromContext(ctx)
		return payUnlessPaid(ctx, 42, lock.Token())
	})
}

func snippetWrite(ctx context.Context, db *sql.DB, token int64) error {
	return fence.Exec(ctx, db, // fence.ErrStale if a later holder has written
		`UPDATE orders SET state = 'paid', fence = ? WHERE id = 42 AND fence <= ?`, token, token)
}

func snippetConfig(ctx context.Context) (distlock.Locker, error) {
	locker, err := backends.Open(ctx, "etcd://etcd1,etcd2,etcd3/billing?ttl=10s")
	return locker, err
}

func TestSnippets(t *testing.T) {
	quickstart := strings.TrimSpace(read(t, "../examples/quickstart/main.go"))
	_, program, _ := strings.Cut(quickstart, "\npackage main") // without the comment above
	code := strings.ReplaceAll(read(t, "snippets_test.go"), "\n\t", "\n") + "\npackage main" + program + "\n"
	testkit.Quoted(t, "../README.md", 3, code)
	testkit.Quoted(t, "../docs/config.md", 1, code)
	snippets := indented(read(t, "../lock.go"))
	if len(snippets) != 2 {
		t.Errorf("lock.go has %d snippets, want 2", len(snippets))
	}
	for _, s := range snippets {
		if !strings.Contains(code, "\n"+s+"\n") {
			t.Errorf("a snippet of lock.go is not compiled by this test:\n%s", s)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	testkit.Must(t, err)
	return string(text)
}

// indented returns the code in the documentation of a package.
func indented(file string) (snippets []string) {
	doc, _, _ := strings.Cut(file, "\npackage ")
	var code []string
	for _, line := range append(strings.Split(doc, "\n"), "// ") {
		line = strings.TrimPrefix(line, "//")
		switch {
		case strings.HasPrefix(line, "\t"), line == "" && code != nil:
			code = append(code, strings.TrimPrefix(line, "\t"))
		case code != nil:
			snippets = append(snippets, strings.TrimRight(strings.Join(code, "\n"), "\n"))
			code = nil
		}
	}
	return snippets
}

// The function runs with the lock held, and its error is Do's.
func TestSnippetDo(t *testing.T) {
	locker, failed := open(t, "mem://snippet"), errors.New("no money")
	err := snippetDo(t.Context(), locker, func(ctx context.Context, order int, token int64) error {
		if _, err := locker.TryLock(ctx, "orders/42"); order != 42 || token <= 0 || !errors.Is(err, distlock.ErrHeld) {
			t.Errorf("order %d, token %d: the lock is not held: %v", order, token, err)
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("the error is %v", err)
	}
}
