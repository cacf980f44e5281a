package conformance_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/memlock"
)

// keepsOut is memory with a store that answers each Break of a hold with an error of its own.
type keepsOut struct{ memory }

func (h keepsOut) ForCheck(c *conformance.C) conformance.Harness {
	return keepsOut{h.memory.ForCheck(c).(memory)}
}

func (h keepsOut) Open(context.Context, *conformance.C) (distlock.Locker, error) {
	l, err := memlock.New(h.stores.get(""), nil)
	return busyRow{l}, err
}

type busyRow struct{ *memlock.Locker }

func (l busyRow) Break(ctx context.Context, name string, token int64) error {
	if st, err := l.Inspect(ctx, name); err != nil || st.Held {
		return errors.Join(err, errors.New("lock wait timeout exceeded"))
	}
	return l.Locker.Break(ctx, name, token)
}

// TestBreakKeptOut: a Break that the store refuses for as long as A is stopped says nothing of the driver.
func TestBreakKeptOut(t *testing.T) {
	t.Parallel()
	broken := func(k conformance.Check) bool {
		return strings.HasPrefix(k.ID, "pair/") && strings.HasSuffix(k.ID, "-broken")
	}
	r := conformance.Collect(t, keepsOut{}, &conformance.Options{VirtualTime: true, Filter: broken, Artifacts: t.TempDir()})
	for _, res := range r.Results {
		if res.Status != conformance.Inconclusive || !strings.Contains(res.Reason, "A kept B from going on: [1") {
			t.Errorf("%s: got %s: %s", res.ID, res.Status, res.Reason)
		}
	}
	if len(r.Results) != 3 {
		t.Errorf("got %d results, want 3", len(r.Results))
	}
}
