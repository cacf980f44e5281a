package harness

import (
	"errors"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// Exercise does with a name what users do: it is locked with the options, extended, refused to one call and waited for
// by another, shown, and handed on. It is for clients with rights, settings or a way to the store of their own; what
// they are told in detail is the suite's to judge. The store has to tell that somebody waits, as all do but Redlock.
func Exercise(t testing.TB, l distlock.Locker, name string, opts ...distlock.Option) {
	t.Helper()
	ctx := t.Context()
	first, err := l.Lock(ctx, name, opts...)
	testkit.Must(t, err)
	testkit.Must(t, first.Extend(ctx, time.Minute))
	if _, err := l.TryLock(ctx, name, opts...); !errors.Is(err, distlock.ErrHeld) {
		t.Errorf("TryLock of %q, which is held: %v, want ErrHeld", name, err)
	}
	waited := make(chan error, 1)
	go func() {
		next, err := l.Lock(ctx, name)
		if err == nil {
			err = next.Unlock(ctx)
		}
		waited <- err
	}()
	testkit.Until(t, "another call waits", func() bool {
		st, err := distlock.Inspect(ctx, l, name)
		testkit.Must(t, err)
		return st.Wanted || len(waited) > 0
	})
	list, err := distlock.List(ctx, l, name)
	if err != nil || len(list) != 1 || list[0].Name != name {
		t.Errorf("List of %q, which is held: %+v, %v", name, list, err)
	}
	testkit.Must(t, first.Unlock(ctx))
	testkit.Must(t, <-waited)
}
