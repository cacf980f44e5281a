package redislock

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/driver"

	"github.com/distlock-go/distlock/internal/testkit"
)

// A release makes the first waiter the holder, and the message is all that the waiter
// needs: it has its whole TTL from the release, and counts it from no later.
func TestReleaseGrants(t *testing.T) {
	t.Parallel()
	drivers, prefix := stores(t, 2)
	a, b := drivers[0].claim("x", long), drivers[1].claim("x", long)
	first := grants(t, a)
	queues(t, b)
	asked := time.Now()
	refuses(t, b) // stays in the queue
	latency := time.Since(asked)
	time.Sleep(20 * time.Millisecond)
	before := time.Now()
	releases(t, a)
	after := time.Now()
	hears(t, b)
	admin := client(t, server(t).URL())
	lasts := admin.PTTL(t.Context(), b.key.entry()).Val()
	if early := time.Until(before.Add(long)) - lasts; early > 2*time.Millisecond {
		t.Errorf("the entry ends %v before a TTL has passed since the release was asked for", early)
	}
	g := forget(t, drivers[1], b)
	ends := g.Sent.Add(g.TTL)
	switch {
	case g.Token <= first.Token:
		t.Errorf("granted token %d after %d", g.Token, first.Token)
	case ends.After(after.Add(long)):
		t.Errorf("the lease is said to end %v later than it can", ends.Sub(after.Add(long)))
	case ends.Before(before.Add(long - latency - 3*time.Millisecond)): // the server counts whole ones
		t.Errorf("%v of the TTL are missing: the waiting was taken off", before.Add(long).Sub(ends))
	}
	if st, err := drivers[0].Inspect(t.Context(), "x"); err != nil || st.Token != g.Token || st.Holder != "test" || st.Waiters != 0 {
		t.Errorf("the status is %+v, %v; want token %d", st, err, g.Token)
	}
	if r, err := b.Renew(t.Context(), long); err != nil || r.TTL < long {
		t.Errorf("Renew: %+v, %v", r, err)
	}
	releases(t, b)
	if left := leftovers(t, admin, prefix); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// forget fails the test unless c has been granted its name already, so that its Try
// needs no request: it is called while the client is closed.
func forget(t *testing.T, d *store, c *claim) driver.Grant {
	t.Helper()
	refuse := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer refuse.Close()
	working := d.sender.Client
	d.sender.Client = refuse
	defer func() { d.sender.Client = working }()
	return grants(t, c)
}

// A grant by an earlier Try than the latest may be over: it is a wake-up, no more. So
// is what is no grant at all.
func TestStaleGrants(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{" 9000000000000000 1 5", " 9000000000000000 3 5",
		" 9000000000000000 2", " x 2 5", " -1 2 5", " 9000000000000000 2 -5", " 9000000000000000 0 5", ""} {
		t.Run(fmt.Sprintf("%q", payload), func(t *testing.T) {
			a, b := heldAndAwaited(t)
			b.tries = 1
			refuses(t, b) // by Try number 2
			admin := client(t, server(t).URL())
			testkit.Must(t, admin.Publish(t.Context(), b.waiter.channel, b.request.Owner+payload).Err())
			hears(t, b)
			refuses(t, b)
			releases(t, a)
			hears(t, b)
			grants(t, b)
			releases(t, b)
		})
	}
}

// If the server's clock jumps forward while a claim waits, its word on when the lease began is worth nothing: the claim is
// woken and has to ask.
func TestGrantBesideAJumpOfTheClock(t *testing.T) {
	t.Parallel()
	_, b := heldAndAwaited(t)
	admin := client(t, server(t).URL())
	testkit.Must(t, admin.Publish(t.Context(), b.waiter.channel, fmt.Sprintf("%s 9000000000000000 %d 20000", b.request.Owner, b.tries)).Err())
	hears(t, b)
	if g := b.driver.subscriber.granted(b); g.Token != 0 {
		t.Errorf("granted %+v", g)
	}
}

// A claim that has not been heard of for half of its lease may be dead: it is only called,
// and the others do not wait for a whole lease of it.
func TestSilentWaiterIsOnlyCalled(t *testing.T) {
	t.Parallel()
	a, b := heldAndAwaited(t)
	admin := client(t, server(t).URL())
	ends := admin.Time(t.Context()).Val().Add(lease/2 - time.Second).UnixMilli()
	testkit.Must(t, admin.HSet(t.Context(), b.key.waiters(), b.request.Owner,
		fmt.Sprintf("%d %s %d %d test", ends, b.waiter.channel, long.Milliseconds(), b.tries)).Err())
	releases(t, a)
	hears(t, b)
	if n := admin.Exists(t.Context(), b.key.entry()).Val(); n != 0 {
		t.Error("the release has made the waiter the holder")
	}
	if g := grants(t, b); !g.Sent.IsZero() {
		t.Errorf("granted %+v, want a lease that counts from the call", g)
	}
	releases(t, b)
}

// What a claim was granted is over once the server has told it that another holds the
// name, though the message was late: it came while that Try was under way.
func TestGrantThatIsOverBeforeItIsHeardOf(t *testing.T) {
	t.Parallel()
	drivers, _ := stores(t, 1)
	late := &lateGrant{t: t, admin: client(t, server(t).URL())}
	c := client(t, server(t).URL())
	c.AddHook(late)
	d := driverOn(t, c, drivers[0].prefix)
	a, b := drivers[0].claim("x", long), d.claim("x", long)
	grants(t, a)
	queues(t, b)
	late.claim.Store(b)
	refuses(t, b)
	if late.claim.Load() != nil {
		t.Fatal("the Try sent no request")
	}
	refuses(t, b)
	releases(t, b)
	releases(t, a)
}

// lateGrant delivers a grant to the claim just before the next request of its client.
type lateGrant struct {
	t     *testing.T
	admin *redis.Client
	claim atomic.Pointer[claim]
}

func (h *lateGrant) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *lateGrant) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *lateGrant) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c := h.claim.Swap(nil); c != nil {
			testkit.Must(h.t, h.admin.Publish(ctx, c.waiter.channel, fmt.Sprintf("%s 9000000000000000 %d 5", c.request.Owner, c.tries)).Err())
			testkit.Until(h.t, "the grant has been heard of", func() bool { return len(c.waiter.wake) == 1 })
		}
		return next(ctx, cmd)
	}
}
