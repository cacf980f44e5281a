package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// leaseOf returns for how long the queue entry of c counts.
func leaseOf(t *testing.T, admin *redis.Client, c *claim) time.Duration {
	t.Helper()
	entry, err := admin.HGet(t.Context(), c.key.waiters(), c.request.Owner).Result()
	testkit.Must(t, err)
	at, _, _ := strings.Cut(entry, " ")
	ms, err := strconv.ParseInt(at, 10, 64)
	testkit.Must(t, err)
	return time.UnixMilli(ms).Sub(admin.Time(t.Context()).Val())
}

// A waiter that dies before it listens blocks the name for seconds, whatever its TTL is.
func TestDeadWaiterThatHasNeverListened(t *testing.T) {
	t.Parallel()
	drivers, _ := stores(t, 3)
	a, dead, b := drivers[0].claim("x", long), drivers[1].claim("x", time.Hour), drivers[2].claim("x", time.Hour)
	grants(t, a)
	refuses(t, dead)
	queues(t, b)
	admin := client(t, server(t).URL())
	if lease := leaseOf(t, admin, dead); lease > 5*time.Second {
		t.Errorf("the entry of a waiter that does not listen counts for %v", lease)
	}
	if left := leaseOf(t, admin, b); left > lease {
		t.Errorf("the entry of one that does counts for %v", left)
	}
	releases(t, a)
	if left := refuses(t, b); left > 5*time.Second {
		t.Errorf("the next one is to look again in %v", left)
	}
	testkit.Until(t, "the next one gets the name", func() bool {
		_, err := b.Try(t.Context())
		return err == nil
	})
	releases(t, b)
}

// A waiter looks before its entry ends, also if its TTL is long.
func TestWaiterKeepsItsPlace(t *testing.T) {
	t.Parallel()
	drivers, prefix := stores(t, 1)
	a := drivers[0].claim("x", time.Hour)
	grants(t, a)
	admin := client(t, server(t).URL())
	l := lockerOn(t, client(t, server(t).URL()), &Options{Prefix: prefix, Options: distlock.Options{TTL: time.Hour}})
	got := make(chan error, 1)
	go func() { got <- second(l.Lock(context.Background(), "x")) }()
	place := func() (ends int64) {
		for owner, place := range admin.HGetAll(t.Context(), a.key.waiters()).Val() {
			if strings.Contains(place, ":wake:") && owner != "" {
				ends, _ = strconv.ParseInt(strings.Fields(place)[0], 10, 64)
			}
		}
		return ends
	}
	testkit.Until(t, "it listens", func() bool { return place() > 0 })
	first := place()
	testkit.Until(t, "it has kept its place", func() bool { return place() > first+time.Second.Milliseconds() })
	releases(t, a)
	testkit.Must(t, <-got)
}

// Where scripts may not publish, waiters look ten times a second, though they may
// subscribe, and nothing is given to one that cannot be told.
func TestScriptsMayNotPublish(t *testing.T) {
	t.Parallel()
	s, admin := own(t)
	testkit.Must(t, admin.ACLSetUser(t.Context(), "mute", "on", ">secret", "~*", "allchannels", "+@all", "-publish").Err())
	mute := client(t, fmt.Sprintf("redis://mute:secret@%s", s.Addr()))
	prefix := freshPrefix()
	o := &Options{Prefix: prefix, Options: distlock.Options{TTL: 30 * time.Second}}
	l, other := lockerOn(t, mute, o), lockerOn(t, mute, o)
	counter := driverOn(t, admin, prefix)
	testkit.WithinFresh(t, 2*time.Second, func() func() { // a waiter that relies on a message looks every nine
		first, err := l.Lock(t.Context(), "x")
		testkit.Must(t, err)
		got := make(chan error, 1)
		go func() {
			next, err := other.Lock(t.Context(), "x")
			if err == nil {
				err = next.Unlock(t.Context())
			}
			got <- err
		}()
		testkit.Until(t, "it waits, and has subscribed", func() bool {
			return len(admin.PubSubChannels(t.Context(), prefix+"*").Val()) == 1 &&
				admin.LLen(t.Context(), keyOf(prefix, "x").queue()).Val() == 1
		})
		scripts := scriptRuns(t, counter)
		testkit.Until(t, "it has looked since, and again", func() bool { return scriptRuns(t, counter) >= scripts+2 })
		return func() {
			testkit.Must(t, first.Unlock(t.Context()))
			testkit.Must(t, <-got)
		}
	})

	near, far := driverOn(t, mute, prefix), driverOn(t, admin, prefix)
	a, b := near.claim("y", long), far.claim("y", long)
	grants(t, a)
	queues(t, b)
	releases(t, a) // cannot tell
	if n := admin.Exists(t.Context(), b.key.entry()).Val(); n != 0 {
		t.Error("the release has made a waiter the holder that it could not tell")
	}
	refuses(t, near.tryOnly("y", long)) // the waiter is still the first
	grants(t, b)
	releases(t, b)
	if left := leftovers(t, admin, prefix); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// Where they may, a waiter is told that it will be woken, and then does not look again.
func TestChannelIsTestedWithoutARequest(t *testing.T) {
	t.Parallel()
	_, admin := own(t)
	drivers := []*store{driverOn(t, admin, defaultPrefix), driverOn(t, client(t, "redis://"+admin.Options().Addr), defaultPrefix)}
	a, b := drivers[0].claim("x", long), drivers[1].claim("x", long)
	g := grants(t, a)
	if held := refusal(t, b); !held.NoWake || held.Holder != "test" || held.Token != g.Token {
		t.Errorf("the first answer is %+v, want the holder with token %d, and that nothing wakes the claim", held, g.Token)
	}
	queues(t, b)
	testkit.Until(t, "the test has arrived", func() bool { return drivers[1].subscriber.relies(b) })
	if held := refusal(t, b); held.NoWake {
		t.Error("the channel works, and the claim is told that nothing wakes it")
	}
	scripts := scriptRuns(t, drivers[0])
	drivers[1].subscriber.enlist(t.Context(), b, false)
	unheard(t, b)
	if n := scriptRuns(t, drivers[0]) - scripts; n != 0 {
		t.Errorf("%d requests while it waited", n)
	}
	releases(t, b)
	releases(t, a)
}

// The text of a holder comes through whole, also if a release makes it the holder.
func TestHolderTextWithNUL(t *testing.T) {
	t.Parallel()
	drivers, _ := stores(t, 2)
	for _, text := range []string{"x\x00y", "\x00", "12 34 %s\n\x00 x"} {
		a, b := drivers[0].claim("x", long), drivers[1].claim("x", long)
		b.request.Holder = text
		grants(t, a)
		queues(t, b)
		releases(t, a)
		hears(t, b)
		if st, err := drivers[0].Inspect(t.Context(), "x"); err != nil || st.Holder != text {
			t.Errorf("the holder %q is shown as %q, %v", text, st.Holder, err)
		}
		grants(t, b)
		releases(t, b)
	}
}

// A server that accepts and says nothing does not hold up Close, also of a client without
// timeouts that does not heed contexts. That is closed as well.
func TestCloseWhileConnecting(t *testing.T) {
	t.Parallel()
	for _, heeds := range []bool{false, true} {
		testkit.Within(t, maxClose+time.Second, func() {
			mute, asked := silentOnceAsked(t)
			c := redis.NewClient(&redis.Options{Addr: mute, ReadTimeout: -1, WriteTimeout: -1, ContextTimeoutEnabled: heeds})
			d, err := newStore(c, new(Options).clone(), true)
			testkit.Must(t, err)
			d.subscriber.enlist(t.Context(), d.claim("x", long), false)
			<-asked
			_ = d.Close()
			if err := c.Close(); !errors.Is(err, redis.ErrClosed) {
				t.Errorf("the client was not closed: %v", err)
			}
		})
	}
}

// When another server has become the master of a name, its waiters listen there, though
// the one that was hangs and does not tell them.
func testClusterTakenOver(t *testing.T, addrs []string, nodes []*redis.Client, members []*servers.Server) {
	prefix := freshPrefix()
	hasty := func() *store { // asks the next server soon when one hangs
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true, ReadTimeout: time.Second})
		t.Cleanup(func() { _ = c.Close() })
		return driverOn(t, c, prefix)
	}
	d, rival := hasty(), hasty()
	a, b := rival.claim("x", long), d.claim("x", long)
	grants(t, a)
	queues(t, b)
	key := a.key.entry()
	slot := int(nodes[0].ClusterKeySlot(t.Context(), key).Val())
	master, err := d.cluster.MasterForKey(t.Context(), key)
	testkit.Must(t, err)
	old, next := 0, 1
	for i, addr := range addrs {
		if addr == master.Options().Addr {
			old, next = i, (i+1)%len(addrs)
		}
	}
	id, oldID := nodeID(t, nodes[next]), nodeID(t, nodes[old])
	freeze(t, members, addrs[old])
	testkit.Must(t, nodes[next].Do(t.Context(), "CLUSTER", "SETSLOT", slot, "IMPORTING", oldID).Err())
	testkit.Must(t, nodes[next].Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", id).Err())
	testkit.Must(t, nodes[3-old-next].Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", id).Err())
	for _, d := range []*store{d, rival} {
		testkit.Until(t, "the topology is known", func() bool {
			d.cluster.ReloadState(t.Context())
			m, err := d.cluster.MasterForKey(t.Context(), key)
			return err == nil && m.Options().Addr == addrs[next]
		})
	}
	c := rival.claim("x", long)
	grants(t, c) // the new master knows of nobody
	queues(t, b)
	if n := nodes[next].PubSubShardNumSub(t.Context(), b.waiter.channel).Val()[b.waiter.channel]; n != 1 {
		t.Errorf("%d listen at the new master", n)
	}
	releases(t, c)
	hears(t, b)
	grants(t, b)
	releases(t, b)
}
