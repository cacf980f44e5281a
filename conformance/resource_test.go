package conformance

import (
	"strings"
	"sync"
	"testing"
)

func TestRegisterRefusesLowerTokens(t *testing.T) {
	r := new(register)
	for _, w := range []struct {
		who   string
		token int64
		ok    bool
	}{{"A", 3, true}, {"A", 3, true}, {"B", 7, true}, {"A", 3, false}, {"C", 6, false}, {"B", 7, true}} {
		err := r.write(w.who, w.token)
		if (err == nil) != w.ok {
			t.Errorf("%s writes with token %d: %v", w.who, w.token, err)
		}
		if err != nil && !strings.Contains(err.Error(), "B has written") {
			t.Errorf("the error does not name the one who wrote last: %v", err)
		}
	}
	if len(r.writes) != 4 {
		t.Errorf("writes: %v", r.writes)
	}
}

// TestCounterShowsLostAdditions: without a lock the counter must go wrong, or it
// would prove nothing with one.
func TestCounterShowsLostAdditions(t *testing.T) {
	var k counter
	var both sync.WaitGroup
	both.Add(2)
	var done sync.WaitGroup
	for range 2 {
		done.Go(func() { k.add(func() { both.Done(); both.Wait() }) })
	}
	done.Wait()
	if k.lost() != 1 {
		t.Errorf("%d additions lost, want 1", k.lost())
	}
	k.add(func() {})
	if k.lost() != 1 || k.added.Load() != 3 {
		t.Errorf("%d of %d additions lost, want 1 of 3", k.lost(), k.added.Load())
	}
}
