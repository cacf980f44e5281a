package pglock

import (
	"testing"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
)

// TestPooler is the suite behind PgBouncer, which gives each transaction to another session: waiters poll. Skipped are
// the checks of what wakes them.
func TestPooler(t *testing.T) {
	t.Parallel()
	server := servers.ForTest(t, servers.Postgres)
	h := harness.On(t, servers.PoolerForTest(t, server), openURL)
	skips := append([]string{"stress/herd", "wait/two-take-turns", "wait/three-take-turns", "wait/four-take-turns"}, unfair...)
	conformance.Run(t, inspected{h, poolOf(t, server.URL())}, harness.Pinned(h.Server, skips...))
}
