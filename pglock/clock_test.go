package pglock

import (
	"testing"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
)

// TestServerClock runs the checks that TestConformance has to skip. The test can move the clock
// of this server.
func TestServerClock(t *testing.T) {
	t.Parallel()
	h := harness.On(t, servers.ClockedForTest(t, servers.Postgres), openURL)
	conformance.Run(t, clocked{inspected{h, poolOf(t, h.URL())}}, harness.OnClock())
}

// clocked adds the server's Jump.
type clocked struct{ inspected }

var _ conformance.ServerClock = clocked{}

func (h clocked) Caps() conformance.Caps {
	caps := h.inspected.Caps()
	caps.ServerClock = conformance.Yes
	return caps
}
