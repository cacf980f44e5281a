package main

import (
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
)

// Each story goes as it is told: the naive lock wrong, ours right.
func TestStories(t *testing.T) {
	url := servers.ForTest(t, servers.Redis).URL()
	for i, s := range stories {
		t.Run(s.title, func(t *testing.T) {
			t.Parallel() // it waits for the ends of leases
			var out strings.Builder
			if err := demonstrate(t.Context(), url, &out, 2*time.Second, []story{s}); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			t.Log(out.String())
			want := min(i, 1) // all stories but the first
			if n := strings.Count(out.String(), "Two holders"); n != want {
				t.Errorf("it ends with two holders %d times, want %d:\n%s", n, want, out.String())
			}
		})
	}
}

func TestAnotherStore(t *testing.T) {
	err := demonstrate(t.Context(), "mysql://me:secret@h/db", new(strings.Builder), lease, stories)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("another store: %v", err)
	}
}
