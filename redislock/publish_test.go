package redislock

import (
	"strings"
	"testing"

	"github.com/distlock-go/distlock/internal/testkit"
)

// A message also reaches subscribers at a replica, and on a cluster behind one address those
// at any server. The release does not know of them and gives them
// nothing; so it must not tell them that it did.
func TestWaiterThatListensElsewhereIsOnlyCalled(t *testing.T) {
	t.Parallel()
	pair := newPair(t)
	primary, replica := pair.servers()
	prefix := freshPrefix()
	admin := client(t, primary.URL())
	near, far := driverOn(t, admin, prefix), driverOn(t, client(t, primary.URL()), prefix)
	far.subscriber.client = client(t, replica.URL())
	a, b := near.claim("x", long), far.claim("x", long)
	grants(t, a)
	queues(t, b)
	releases(t, a)
	hears(t, b)
	g := grants(t, b)
	if n := admin.Exists(t.Context(), b.key.entry()).Val(); n != 1 {
		t.Errorf("the claim believes %+v, and the server knows nothing of that", g)
	}
	releases(t, b)
}

// A monitor that sees all messages does not stand in for a waiter that has died.
func TestWatcherIsNoWaiter(t *testing.T) {
	t.Parallel()
	drivers, prefix := stores(t, 3)
	admin := client(t, server(t).URL())
	watcher := admin.PSubscribe(t.Context(), prefix+"*")
	defer watcher.Close()
	_, err := watcher.Receive(t.Context())
	testkit.Must(t, err)
	a, dead, c := drivers[0].claim("x", long), drivers[1].claim("x", long), drivers[2].claim("x", long)
	grants(t, a)
	queues(t, dead)
	queues(t, c)
	drivers[1].subscriber.dropAll(true)
	testkit.Until(t, "the connection is gone", func() bool {
		return admin.PubSubNumSub(t.Context(), dead.waiter.channel).Val()[dead.waiter.channel] == 0
	})
	releases(t, a)
	hears(t, c)
	forget(t, drivers[2], c)
	releases(t, c)
	releases(t, dead)
}

// A user without the right to count subscribers calls the first waiter, and grants nothing.
func TestReleaseWithoutTheRightToCount(t *testing.T) {
	t.Parallel()
	_, admin := own(t)
	testkit.Must(t, admin.ACLSetUser(t.Context(), "default", "-pubsub").Err())
	prefix := freshPrefix()
	near, far := driverOn(t, admin, prefix), driverOn(t, client(t, "redis://"+admin.Options().Addr), prefix)
	a, b := near.claim("x", long), far.claim("x", long)
	grants(t, a)
	queues(t, b)
	releases(t, a)
	hears(t, b)
	if n := admin.Exists(t.Context(), b.key.entry()).Val(); n != 0 {
		t.Error("the release has made the waiter the holder")
	}
	grants(t, b)
	releases(t, b)
}

// A release needs no memory, also if it gives the name to a waiter.
func TestReleaseGrantsWithoutMemory(t *testing.T) {
	t.Parallel()
	_, admin := own(t)
	prefix := freshPrefix()
	near, far := driverOn(t, admin, prefix), driverOn(t, client(t, "redis://"+admin.Options().Addr), prefix)
	a, b := near.claim("x", long), far.claim("x", long)
	grants(t, a)
	queues(t, b)
	testkit.Must(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	releases(t, a)
	hears(t, b)
	forget(t, far, b)
	releases(t, b)
}

// Each command of a script costs the server time, and it asks for that once.
func TestScriptsAskForTheTimeOnce(t *testing.T) {
	t.Parallel()
	_, admin := own(t)
	d := driverOn(t, admin, freshPrefix())
	a, b, c := d.claim("x", long), d.claim("x", long), d.claim("y", long)
	grants(t, a)
	queues(t, b)
	for what, f := range map[string]func(){
		"taking a free name": func() { grants(t, c) },
		"handing a name on":  func() { releases(t, a) },
	} {
		testkit.Must(t, admin.ConfigResetStat(t.Context()).Err())
		f()
		stats := admin.Info(t.Context(), "commandstats").Val()
		if !strings.Contains(stats, "cmdstat_time:calls=1,") {
			t.Errorf("%s: %s", what, stats)
		}
	}
	hears(t, b)
	releases(t, b)
	releases(t, c)
}
