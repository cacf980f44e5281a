package main

import (
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
)

// backendURL has the table made on a server that was started here, and has none yet.
func backendURL(s *servers.Server) string {
	if s.Controlled() {
		return s.LockURL()
	}
	return s.URL()
}

// What is done and what is left come from one estimate.
func TestShare(t *testing.T) {
	for _, tc := range []struct {
		spent, left time.Duration
		want        int
	}{{0, 0, 0}, {0, time.Minute, 0}, {time.Minute, time.Minute, 50}, {3 * time.Minute, time.Minute, 75}, {time.Hour, 0, 99}} {
		if got := share(tc.spent, tc.left); got != tc.want {
			t.Errorf("%v of %v: %d%%, want %d%%", tc.spent, tc.spent+tc.left, got, tc.want)
		}
	}
}
