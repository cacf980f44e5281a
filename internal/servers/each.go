package servers

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// LockURL is URL for those that open a Locker: on MySQL and Postgres it creates the table.
func (s *Server) LockURL() string {
	if s.kind != MySQL && s.kind != Postgres {
		return s.URL()
	}
	return with(s.URL(), "create=true")
}

// PatientURL is LockURL for a test: a new server may have to be waited for, on a machine that is late.
func (s *Server) PatientURL() string {
	if !s.Controlled() {
		return s.LockURL()
	}
	return with(s.LockURL(), "dial_timeout=1m")
}

// with adds a parameter to a URL.
func with(url, param string) string {
	if strings.Contains(url, "?") {
		return url + "&" + param
	}
	return url + "?" + param
}

// eachVariable is the environment variable that, as "all", has Some and Sample return all.
const eachVariable = "DISTLOCK_EACH"

// Some returns the kinds of server for a test of code that does not know which it has: one by chance, or all where that
// is asked for. To start five servers takes longer than most such tests.
func Some() []Kind { return Sample(1, Kinds...) }

// Sample returns n of these by chance, or all where that is asked for.
func Sample[T any](n int, all ...T) []T {
	all = slices.Clone(all)
	if os.Getenv(eachVariable) == "all" {
		return all
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

// Each runs a test on each backend that Some returns, side by side, with the URL of a server of its own.
// It is for code on top of a Locker, independent of the backend.
func Each(t *testing.T, test func(t *testing.T, url string)) {
	for _, kind := range Some() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, ForTest(t, kind).PatientURL())
		})
	}
}
