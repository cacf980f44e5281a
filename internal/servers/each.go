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
	separator := "?"
	if strings.Contains(s.URL(), "?") {
		separator = "&"
	}
	return s.URL() + separator + "create=true"
}

// eachVariable is the environment variable that, as "all", has Some return all kinds.
const eachVariable = "DISTLOCK_EACH"

// Some returns the kinds of server for a test of code that does not know which it has: two by chance, or all where that
// is asked for. To start five servers takes longer than most such tests.
func Some() []Kind {
	kinds := slices.Clone(Kinds)
	if os.Getenv(eachVariable) != "all" {
		rand.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		kinds = kinds[:2]
	}
	return kinds
}

// Each runs a test on each backend that Some returns, side by side, with the URL of a server of its own.
// It is for code on top of a Locker, independent of the backend.
func Each(t *testing.T, test func(t *testing.T, url string)) {
	for _, kind := range Some() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, ForTest(t, kind).LockURL())
		})
	}
}
