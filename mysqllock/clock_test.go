package mysqllock

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestServerClock runs the checks that TestConformance has to skip. The test can move the clock
// of this server.
func TestServerClock(t *testing.T) {
	t.Parallel()
	h := harness.On(t, servers.ClockedForTest(t, servers.MySQL), openURL)
	conformance.Run(t, clocked{inspected{h, poolOf(t, config(t, h.URL()))}}, harness.OnClock())
}

// clocked adds the server's Jump.
type clocked struct{ inspected }

var _ conformance.ServerClock = clocked{}

func (h clocked) Caps() conformance.Caps {
	caps := h.inspected.Caps()
	caps.ServerClock = conformance.Yes
	return caps
}

// TestClockGoesBackInRenewal has the server's clock go back between the statements of a renewal.
// The first statement has found a lease at its end; at the new time it runs. A lock reported as
// renewed must be renewed.
func TestClockGoesBackInRenewal(t *testing.T) {
	t.Parallel()
	d := testDriver(t, pool(t, clockStands), freshTable(t))
	long, short := d.claimOn("long", time.Hour), d.claimOn("short", time.Minute)
	grants(t, long)
	grants(t, short)
	age(t, d, "expires", 40*time.Second, "short")

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
	testkit.Must(t, err)
	db := poolOf(t, c)
	db.SetMaxIdleConns(-1) // so that each statement comes on a connection of its own
	d.renewals.db, d.renewals.common = db, db
	batch := []driver.Renewal{{Claim: long, TTL: time.Hour}, {Claim: short, TTL: time.Minute}}
	d.Renew(t.Context(), batch)
	if batch[0].Err != nil {
		t.Errorf("renewal of a lease that runs: %v", batch[0].Err)
	}
	if err := batch[1].Err; err != nil {
		t.Errorf("renewal of a lease that runs by the clock of the statement that decided: %v", err)
	}
	if left := refuses(t, d.claimOn("short", time.Minute)); left != time.Minute {
		t.Errorf("the lease was told to be renewed for a minute, and has %v left", left)
	}
	if n := connections.Load(); n != 3 {
		t.Errorf("%d connections were made, want 3: one ahead, one to see what was renewed, one to renew the rest", n)
	}
}
