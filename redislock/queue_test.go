package redislock

import (
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/testkit"
)

// stores returns n drivers, each on a connection of its own, as in another process.
func stores(t *testing.T, n int) (drivers []*store, prefix string) {
	t.Helper()
	prefix = freshPrefix()
	for range n {
		drivers = append(drivers, driverOn(t, client(t, server(t).URL()), prefix))
	}
	return drivers, prefix
}

// heldAndAwaited returns claims of two processes: one that holds a name, and one that is in its queue and listens.
func heldAndAwaited(t *testing.T) (holder, waiter *claim) {
	t.Helper()
	drivers, _ := stores(t, 2)
	holder, waiter = drivers[0].claim("x", long), drivers[1].claim("x", long)
	grants(t, holder)
	queues(t, waiter)
	return holder, waiter
}

// The subscription may be confirmed, for another claim, between the Try of a claim and
// its Wait: then the server does not know where to wake it.
func TestSubscriptionConfirmedBeforeTheWait(t *testing.T) {
	t.Parallel()
	drivers, _ := stores(t, 2)
	a, b, other := drivers[0].claim("x", long), drivers[1].claim("x", long), drivers[1].claim("x", long)
	grants(t, a)
	refuses(t, b)
	queues(t, other)
	hears(t, b)
	releases(t, other)
	releases(t, b)
	releases(t, a)
}

// A waiter that was out of touch for longer than its TTL stays in the queue if no other
// has looked and removed it.
func TestWaiterIsKeptUntilAnotherLooks(t *testing.T) {
	t.Parallel()
	drivers, _ := stores(t, 3)
	a, b, c := drivers[0].claim("x", long), drivers[1].claim("x", long), drivers[2].claim("x", long)
	grants(t, a)
	queues(t, b)
	queues(t, c)
	admin := client(t, server(t).URL())
	_, record, _ := strings.Cut(admin.HGet(t.Context(), b.key.waiters(), b.request.Owner).Val(), " ")
	testkit.Must(t, admin.HSet(t.Context(), b.key.waiters(), b.request.Owner, "1 "+record).Err()) // its lease is over
	if st, err := drivers[0].Inspect(t.Context(), "x"); err != nil || st.Waiters != 1 {
		t.Fatalf("%+v, %v, want the second waiter only", st, err)
	}
	refuses(t, b)
	releases(t, a)
	hears(t, b)
	grants(t, b)
	releases(t, b)
	hears(t, c)
	grants(t, c)
	releases(t, c)
}

// A waiter whose Try has failed between its record and its place gets the place with the next Try.
func TestWaiterWithoutAPlaceGetsOne(t *testing.T) {
	t.Parallel()
	a, b := heldAndAwaited(t)
	admin := client(t, server(t).URL())
	testkit.Must(t, admin.LRem(t.Context(), b.key.queue(), 0, b.request.Owner).Err())
	for range 2 {
		refuses(t, b)
	}
	if places := admin.LRange(t.Context(), b.key.queue(), 0, -1).Val(); len(places) != 1 || places[0] != b.request.Owner {
		t.Fatalf("the queue is %q, want the waiter once", places)
	}
	releases(t, a)
	hears(t, b)
	releases(t, b)
}

// A waiter is passed over at once if its process has died and its connection is gone.
func TestDeadWaiterWithoutConnection(t *testing.T) {
	t.Parallel()
	drivers, prefix := stores(t, 4)
	a, c := drivers[0].claim("x", long), drivers[3].claim("x", long)
	grants(t, a)
	var dead []*claim
	for _, d := range drivers[1:3] {
		b := d.claim("x", long)
		queues(t, b)
		dead = append(dead, b)
	}
	queues(t, c)
	for _, b := range dead {
		b.driver.subscriber.dropAll(true)
	}
	admin := client(t, server(t).URL())
	testkit.Until(t, "the connections are gone", func() bool {
		ch := admin.PubSubNumSub(t.Context(), dead[0].waiter.channel, dead[1].waiter.channel).Val()
		return ch[dead[0].waiter.channel]+ch[dead[1].waiter.channel] == 0
	})
	releases(t, a)
	hears(t, c)
	grants(t, c)

	// They were not dead after all: then they still are the first.
	d := drivers[0].claim("x", long)
	queues(t, d)
	refuses(t, dead[1])
	refuses(t, dead[0])
	releases(t, c)
	refuses(t, d)
	refuses(t, dead[1])
	for _, next := range []*claim{dead[0], dead[1], d} {
		grants(t, next)
		releases(t, next)
	}
	if left := leftovers(t, admin, prefix); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestQueueEndsWithItsWaiters(t *testing.T) {
	t.Parallel()
	drivers, prefix := stores(t, 2)
	a := drivers[0].claim("x", long)
	grants(t, a)
	refuses(t, drivers[1].claim("x", 100*time.Millisecond))
	refuses(t, drivers[1].claim("x", 200*time.Millisecond))
	releases(t, a)
	admin := client(t, server(t).URL())
	testkit.Until(t, "nothing is left", func() bool { return len(leftovers(t, admin, prefix)) == 0 })
}

// A copy of an earlier Try that arrives late, from before the waiter listened, leaves it its place and its channel.
func TestLateTryOfAWaiter(t *testing.T) {
	t.Parallel()
	a, b := heldAndAwaited(t)
	late := a.driver.claim("x", long)
	late.request.Owner = b.request.Owner
	refuses(t, late) // the first of its claim, the waiter's was the second
	record := client(t, server(t).URL()).HGet(t.Context(), b.key.waiters(), b.request.Owner).Val()
	if !strings.Contains(record, " "+b.waiter.channel+" ") {
		t.Fatalf("the record of the waiter is %q", record)
	}
	releases(t, a)
	hears(t, b)
	if g := b.driver.subscriber.granted(b); g.Token == 0 {
		t.Error("the release has not given it the name")
	}
	grants(t, b)
	releases(t, b)
}
