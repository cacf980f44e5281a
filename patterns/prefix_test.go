package patterns_test

import (
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

func TestPrefix(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		a, b := patterns.Prefix(l, "a/"), patterns.Prefix(rival, "b/")
		lock := mustLock(t, bg, a, "x")
		if lock.Name() != "x" {
			t.Errorf("the lock is called %q", lock.Name())
		}
		mustLock(t, bg, b, "x")
		_, err := rival.TryLock(bg, "a/x")
		wantErr(t, "TryLock of the full name", err, distlock.ErrHeld)
		_, err = a.TryLock(bg, "")
		wantErr(t, "TryLock of the prefix alone", err, distlock.ErrInvalid)
		outside := mustLock(t, bg, rival, "a/")
		_, err = distlock.Inspect(bg, a, "")
		wantErr(t, "Inspect of the prefix alone", err, distlock.ErrInvalid)
		wantErr(t, "Break of the prefix alone", distlock.Break(bg, a, "", outside.Token()), distlock.ErrInvalid)
		mustUnlock(t, bg, outside)
		sts, err := distlock.List(bg, a, "")
		if err != nil || len(sts) != 1 || sts[0].Name != "x" {
			t.Errorf("List returned %v and %v", sts, err)
		}
		if _, ok := distlock.As[*driver.Handle](lock); !ok {
			t.Error("As does not see through Prefix")
		}
		testkit.Should(t, distlock.Break(bg, a, "x", 0))
	})
}
