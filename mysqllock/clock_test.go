package mysqllock

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
)

// TestServerClock runs the checks that TestConformance has to skip, on a server whose
// clock can be moved.
func TestServerClock(t *testing.T) {
	h := harness.On(t, servers.ClockedForTest(t, servers.MySQL), openURL)
	conformance.Run(t, clocked{inspected{h, poolOf(t, config(t, h.URL()))}}, harness.OnClock()...)
}

// clocked adds the server's Jump.
type clocked struct{ inspected }

var _ conformance.ServerClock = clocked{}

func (h clocked) Caps() conformance.Caps {
	caps := h.inspected.Caps()
	caps.ServerClock = conformance.Yes
	return caps
}

// TestClockGoesBackInRenewal has the server's clock go back between the two statements of
// a renewal, to a time at which a lease ran that the first has found at its end.
func TestClockGoesBackInRenewal(t *testing.T) {
	d := testDriver(t, pool(t, clockStands), freshTable(t))
	long, short := d.bid("long", time.Hour), d.bid("short", time.Minute)
	grants(t, long)
	grants(t, short)

	c := config(t, server(t).URL())
	var connections atomic.Int64
	err := c.Apply(mysql.BeforeConnect(func(_ context.Context, c *mysql.Config) error {
		now := clockStands["timestamp"]
		if connections.Add(1) == 1 {
			now = "1900000600.5" // the first of them is ahead
		}
		c.Params = map[string]string{"timestamp": now}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	d.db = poolOf(t, c)
	d.db.SetMaxIdleConns(-1) // so that each statement comes on a connection of its own
	batch := []distlock.Renewal{{Claim: long, TTL: time.Hour}, {Claim: short, TTL: time.Minute}}
	d.RenewBatch(t.Context(), batch)
	if batch[0].Err != nil {
		t.Errorf("renewal of a lease that runs: %v", batch[0].Err)
	}
	wantError(t, "renewal of a lease at its end", batch[1].Err, distlock.ErrLost)
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections were made, want 2: one ahead, one not", n)
	}
}
