package patterns_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

// shards returns n stores by their keys, and a Locker over a client of each.
func shards(t *testing.T, n int) (map[string]*memlock.Store, distlock.Locker) {
	t.Helper()
	stores := make(map[string]*memlock.Store)
	for i := range n {
		stores[fmt.Sprintf("store-%d", i)] = memlock.NewStore(nil)
	}
	return stores, shardsOf(t, stores)
}

func shardsOf(t *testing.T, stores map[string]*memlock.Store) distlock.Locker {
	t.Helper()
	lockers := make(map[string]distlock.Locker)
	for key, store := range stores {
		lockers[key] = open(t, store)
	}
	l, err := patterns.Shard(lockers)
	testkit.Must(t, err)
	return l
}

// held returns which store has each of the names that are held.
func held(t *testing.T, stores map[string]*memlock.Store) map[string]string {
	t.Helper()
	at := make(map[string]string)
	for key, store := range stores {
		sts, err := distlock.List(bg, open(t, store), "")
		testkit.Must(t, err)
		for _, st := range sts {
			at[st.Name] = key
		}
	}
	return at
}

// Names that differ in a digit spread evenly, and a shard that is added takes its part
// and moves nothing else.
func TestShardSpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names = 3000
		stores, l := shards(t, 4)
		lockAll := func(l distlock.Locker) map[string]string {
			var locks []distlock.Lock
			for i := range names {
				locks = append(locks, mustLock(t, bg, l, fmt.Sprintf("orders/%d", i)))
			}
			at := held(t, stores)
			for _, lock := range locks {
				mustUnlock(t, bg, lock)
			}
			return at
		}
		before := lockAll(l)
		count := make(map[string]int)
		for _, key := range before {
			count[key]++
		}
		for key, n := range count {
			if n < names/4*8/10 || n > names/4*12/10 {
				t.Errorf("%s has %d of %d names", key, n, names)
			}
		}
		stores["store-4"] = memlock.NewStore(nil)
		after, moved := lockAll(shardsOf(t, stores)), 0
		for name, key := range after {
			if key != before[name] {
				moved++
				if key != "store-4" {
					t.Fatalf("%s has moved from %s to %s", name, before[name], key)
				}
			}
		}
		if moved < names/5*8/10 || moved > names/5*12/10 {
			t.Errorf("%d of %d names have moved, want about a fifth", moved, names)
		}
	})
}

func TestShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, l := shards(t, 3)
		rival := shardsOf(t, stores)
		var names []string
		for i := range 20 {
			name := fmt.Sprintf("n%02d", i)
			names = append(names, name)
			mustLock(t, bg, l, name)
			_, err := rival.TryLock(bg, name)
			wantErr(t, "TryLock by another", err, distlock.ErrHeld)
		}
		sts, err := distlock.List(bg, rival, "n")
		var listed []string
		for _, st := range sts {
			listed = append(listed, st.Name)
		}
		if err != nil || !slices.Equal(listed, names) {
			t.Errorf("List returned %v, %v", listed, err)
		}
		if st, err := distlock.Inspect(bg, rival, "n07"); err != nil || !st.Held || st.Token <= 0 {
			t.Errorf("Inspect returned %+v, %v", st, err)
		}
		testkit.Should(t, distlock.Break(bg, rival, "n07", 0))
		mustLock(t, bg, rival, "n07")
		if _, err := distlock.Sweep(bg, l, time.Hour); err != nil {
			t.Errorf("Sweep: %v", err)
		}
		testkit.Should(t, l.Close())
		if at := held(t, stores); len(at) != 1 {
			t.Errorf("after Close there are %v", at)
		}
		if _, err := patterns.Shard(nil); !errors.Is(err, distlock.ErrInvalid) {
			t.Errorf("no shards: %v", err)
		}
	})
}

// deaf is a Locker whose store does not answer.
type deaf struct{ *memlock.Locker }

func (deaf) List(context.Context, string) ([]distlock.Status, error) {
	return nil, errors.New("no answer")
}

// One shard that does not answer hides nothing of the others, and is named.
func TestShardDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := open(t, memlock.NewStore(nil))
		l, err := patterns.Shard(map[string]distlock.Locker{"good": good, "bad": deaf{open(t, memlock.NewStore(nil))}})
		testkit.Must(t, err)
		mustLock(t, bg, good, "x")
		sts, err := distlock.List(bg, l, "")
		if len(sts) != 1 || err == nil || !strings.Contains(err.Error(), "shard bad: no answer") {
			t.Errorf("List returned %v, %v", sts, err)
		}
	})
}
