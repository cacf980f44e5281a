package servers

import (
	"strings"
	"testing"
)

// LockURL is URL for those that open a Locker: on MySQL and Postgres it creates the table.
func (s *Server) LockURL() string {
	if s.kind != MySQL && s.kind != Postgres {
		return s.URL()
	}
	separator := "?"
	if strings.Contains(s.URL(), "?") {
		separator = "&"
	}
	return s.URL() + separator + "create=true"
}

// Each runs a test on each backend, side by side, with the URL of a server of its own.
// It is for code on top of a Locker, independent of the backend.
func Each(t *testing.T, test func(t *testing.T, url string)) {
	for _, kind := range Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, ForTest(t, kind).LockURL())
		})
	}
}
