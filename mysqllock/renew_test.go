package mysqllock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestRenewalBesideBlockedRows renews one lock while others are being renewed alone on locked
// rows. The one lock is the only one due: it must not queue with them.
func TestRenewalBesideBlockedRows(t *testing.T) {
	t.Parallel()
	d := testDriver(t, ownPool(t, 10), freshTable(t))
	mine := d.claimOn("mine", time.Minute)
	grants(t, mine)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range 10 {
		c := d.claimOn(fmt.Sprint("blocked", i), time.Hour)
		grants(t, c)
		lockRow(t, d, c.request.Name)
		wg.Go(func() { d.Renew(ctx, []driver.Renewal{{Claim: c, TTL: time.Hour}}) })
	}
	testkit.Until(t, "the others wait for their rows", func() bool { return len(d.renewals.alone) == cap(d.renewals.alone) })
	time.Sleep(100 * time.Millisecond)                              // for the rest of them to queue
	for _, ttl := range []time.Duration{time.Minute, time.Second} { // the second changes nothing on the row
		testkit.Within(t, 2*time.Second, func() {
			if g, err := mine.Renew(t.Context(), ttl); err != nil || g.TTL != ttl {
				t.Errorf("Renew for %v: %+v, %v", ttl, g, err)
			}
		})
	}
}
