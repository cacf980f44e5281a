package harness

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/distlock-go/distlock/conformance"
)

// shareVariable is the environment variable that, as n, has Run leave out all but every n-th check, chosen at random. Without
// it, and where -run names checks, Run leaves out none.
const shareVariable = "DISTLOCK_CONFORMANCE_SHARE"

// always are the groups of which Run leaves out nothing: mutual exclusion, expiry and owner-safe unlock, and what the driver
// says of itself.
var always = []string{"meta", "core", "expiry", "owner"}

// Run is conformance.Run of a share of the checks that o selects.
func Run(t *testing.T, h conformance.Harness, o *conformance.Options) {
	t.Helper()
	n, err := share(os.Getenv(shareVariable))
	if err != nil {
		t.Fatal(err)
	}
	// Checks that are named are wanted, as when one that was inconclusive is run again.
	named := strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	if n > 1 && !named {
		some := conformance.Options{}
		if o != nil {
			some = *o
		}
		some.Filter = part(OneIn(n), some.Filter)
		o = &some
		t.Logf("%s=%d: one check in %d, and all of the groups %v", shareVariable, n, n, always)
	}
	conformance.Run(t, h, o)
}

// share reads the variable.
func share(text string) (uint32, error) {
	if text == "" {
		return 1, nil
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%s is %q, allowed is a number from 1 to 255", shareVariable, text)
	}
	return uint32(n), nil
}

// OneIn selects one in n checks, at random.
func OneIn(n uint32) func(conformance.Check) bool { return nth(n, rand.Uint32N(n)) }

// nth selects the left-th of n parts of the checks.
func nth(n, left uint32) func(conformance.Check) bool {
	return func(k conformance.Check) bool {
		h := fnv.New32()
		_, _ = h.Write([]byte(k.ID)) // never fails
		return h.Sum32()%n == left
	}
}

// part selects some of the checks that selects does, and all of those in the groups that are always run.
func part(some, selects func(conformance.Check) bool) func(conformance.Check) bool {
	return func(k conformance.Check) bool {
		return (selects == nil || selects(k)) && (slices.Contains(always, k.Group()) || some(k))
	}
}
