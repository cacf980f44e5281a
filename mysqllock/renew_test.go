package mysqllock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/distlock-go/distlock/driver"
)

// TestRenewalBesideBlockedRows renews one lock while others are being renewed alone on locked
// rows. The one lock is the only one due: it must not queue with them.
func TestRenewalBesideBlockedRows(t *testing.T) {
	d := testDriver(t, ownPool(t, 10), freshTable(t))
	mine := d.claimOn("mine", time.Minute)
	grants(t, mine)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range 10 {
		c := d.claimOn(fmt.Sprint("blocked", i), time.Hour)
		grants(t, c)
		lockRow(t, d, c.request.Name)
		wg.Go(func() { d.Renew(ctx, []driver.Renewal{{Claim: c, TTL: time.Hour}}) })
	}
	eventually(t, "the others wait for their rows", func() bool { return len(d.renewals.alone) == cap(d.renewals.alone) })
	time.Sleep(100 * time.Millisecond)                              // for the rest of them to queue
	for _, ttl := range []time.Duration{time.Minute, time.Second} { // the second changes nothing on the row
		short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if g, err := mine.Renew(short, ttl); err != nil || g.TTL != ttl {
			t.Errorf("Renew for %v: %+v, %v", ttl, g, err)
		}
		cancel()
	}
}
