package main

import (
	"strings"
	"testing"

	"github.com/distlock-go/distlock/internal/servers"
)

// Each story goes as it is told: the naive lock wrong, ours right.
func TestStories(t *testing.T) {
	var out strings.Builder
	if err := demonstrate(t.Context(), servers.ForTest(t, servers.Redis).URL(), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	t.Log(out.String())
	if n := strings.Count(out.String(), "Two holders"); n != 3 {
		t.Errorf("%d stories end with two holders, want 3:\n%s", n, out.String())
	}
	if err := demonstrate(t.Context(), "mysql://me:secret@h/db", &out); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("another store: %v", err)
	}
}
