package pglock

import (
	"context"
	"slices"
	"testing"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
)

// TestPooler runs the checks for which it matters that PgBouncer gives each transaction to another session, and that
// waiters poll. Skipped are those of what wakes them.
func TestPooler(t *testing.T) {
	server := servers.ForTest(t, servers.Postgres)
	h := harness.On(t, servers.PoolerForTest(t, server), openURL)
	options := harness.Pinned(h.Server, "stress/herd", "wait/two-take-turns", "wait/three-take-turns", "wait/four-take-turns",
		"fair/try-does-not-barge", "fair/expiry-does-not-barge", "fair/cancelled-skipped")
	groups := []string{"core", "names", "wait", "fair", "fence", "batch", "stress", "lost", "break"}
	options.Filter = func(k conformance.Check) bool { return slices.Contains(groups, k.Group()) }
	options.Skips = slices.DeleteFunc(options.Skips, func(id string) bool {
		return !slices.ContainsFunc(conformance.Checks(), func(k conformance.Check) bool { return k.ID == id && options.Filter(k) })
	})
	harness.Run(t, pooled{inspected{h, poolOf(t, server.URL())}}, options)
}

// pooled has no list of waiters: they poll.
type pooled struct{ inspected }

// Waiters implements conformance.Inspector.
func (pooled) Waiters(context.Context, string) (int, error) { return -1, nil }
