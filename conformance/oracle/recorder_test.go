package oracle

import (
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
)

// A lock broken behind its holder's back has two holders until the first one learns of
// it. A Recorder must say so, once for each grant too many.
func TestRecorderOverlaps(t *testing.T) {
	l, err := memlock.New(memlock.NewStore(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := NewRecorder(History{Backend: "memory"})
	ttl := distlock.TTL(time.Hour)
	for i, want := range []int{0, 1, 2} {
		if _, err := r.Acquire(t.Context(), OpLock, "A", l, "x", ttl); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Acquire(t.Context(), OpTry, "B", l, "x", ttl); err == nil {
			t.Fatal("the name has two holders although nobody broke it")
		}
		if got := r.History().Overlaps(); len(got) != want {
			t.Errorf("after %d grants: %d overlaps, want %d: %v", i+1, len(got), want, got)
		}
		if err := distlock.Break(t.Context(), l, "x", 0); err != nil {
			t.Fatal(err)
		}
	}
	y, err := r.Acquire(t.Context(), OpLock, "A", l, "y", ttl)
	if err != nil {
		t.Fatal(err)
	}
	if err := y.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Acquire(t.Context(), OpLock, "B", l, "y", ttl); err != nil {
		t.Fatal(err)
	}
	if got := r.History().Overlaps(); len(got) != 2 {
		t.Errorf("a name that was handed on counts as an overlap: %v", got)
	}
}
