package redislock

import (
	"testing"

	"github.com/distlock-go/distlock/conformance"
	pin "github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
)

// TestServerClock runs the checks that TestConformance has to skip. The test can move the clock
// of this server.
func TestServerClock(t *testing.T) {
	t.Parallel()
	h := pin.On(t, servers.ClockedForTest(t, servers.Redis), openURL)
	conformance.Run(t, clocked{harness{h, client(t, h.URL())}}, pin.OnClock())
}

// clocked adds the server's Jump.
type clocked struct{ harness }

var _ conformance.ServerClock = clocked{}

func (h clocked) Caps() conformance.Caps {
	caps := h.harness.Caps()
	caps.ServerClock = conformance.Yes
	return caps
}
