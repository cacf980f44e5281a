package redislock

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/redislock/internal/names"
)

// A server from which the client has its view of the cluster has forgotten a master, or has not
// heard of it yet. Then List does not leave out what that has.
func TestListKnowsAllMasters(t *testing.T) {
	t.Parallel()
	addrs, nodes, _ := startCluster(t, 3)
	prefix := freshPrefix()
	renewals(t, driverOn(t, clusterClient(t, addrs), prefix), 50)
	lost := nodeID(t, nodes[2])
	for _, c := range nodes[:2] {
		testkit.Must(t, c.Do(t.Context(), "CLUSTER", "FORGET", lost).Err())
	}
	d := driverOn(t, clusterClient(t, addrs[:2]), prefix)
	if list, err := d.List(t.Context(), ""); err == nil || driver.FateOf(err) != driver.NotNow {
		t.Errorf("List without a master: %d of 50 names, %v; want an error of fate not now", len(list), err)
	}
	meet(t, addrs[2], nodes[2], nodes[:2])
	testkit.Until(t, "the master is known again", func() bool {
		list, err := d.List(t.Context(), "")
		return err == nil && len(list) == 50
	})
}

// meet has others get to know a server again.
func meet(t *testing.T, addr string, c *redis.Client, others []*redis.Client) {
	t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	bus := c.ConfigGet(t.Context(), "cluster-port").Val()["cluster-port"]
	for _, other := range others {
		testkit.Must(t, other.Do(t.Context(), "CLUSTER", "MEET", host, port, bus).Err())
	}
}

// Keys move while List reads: from one master to another, and to a server that had no slots.
func TestListWhileSlotsMove(t *testing.T) {
	t.Parallel()
	addrs, nodes, _ := startCluster(t, 2)
	newAddr, fresh := start(t, "cluster-enabled yes", "cluster-port "+servers.SparePort, "enable-debug-command yes")
	prefix := freshPrefix()
	d := driverOn(t, clusterClient(t, addrs), prefix)
	batch := renewals(t, d, 20)
	// Not by List: it also asks for each name, and Redis refuses that while the slot is open.
	all := func(when string) {
		t.Helper()
		found, err := d.scan(t.Context(), names.Pattern(prefix, ""))
		slices.Sort(found)
		if found = slices.Compact(found); err != nil || len(found) != len(batch) {
			t.Errorf("found %s: %d of %d names, %v", when, len(found), len(batch), err)
		}
	}
	slot := int(nodes[0].ClusterKeySlot(t.Context(), batch[0].Claim.(*claim).key.entry()).Val())
	from := slot * 2 / 16384
	to := 1 - from
	openSlot(t, slot, nodes[from], nodes[to])
	all("with an open slot")
	moveKeys(t, slot, addrs[to], nodes[from])
	all("with an open slot and its keys moved")
	closeSlot(t, slot, addrs[to], nodes[from], nodes[to], nodes)
	testkit.Until(t, "the servers agree again", func() bool { return second(d.List(t.Context(), "")) == nil })
	all("after the move")

	meet(t, newAddr, fresh, nodes)
	id := nodeID(t, fresh)
	testkit.Until(t, "the servers know each other", func() bool {
		return strings.Contains(nodes[to].ClusterNodes(t.Context()).Val(), id) &&
			strings.Contains(fresh.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	openSlot(t, slot, nodes[to], fresh)
	moveKeys(t, slot, newAddr, nodes[to])
	if list, err := d.List(t.Context(), ""); err == nil {
		t.Errorf("List without a server that has a key: %d of %d names, no error", len(list), len(batch))
	}
	closeSlot(t, slot, newAddr, nodes[to], fresh, nodes)
	testkit.Until(t, "the servers agree again", func() bool { return second(d.List(t.Context(), "")) == nil })
	all("with a new server")
}

func TestViews(t *testing.T) {
	t.Parallel()
	line := func(id, flags, slots string) string {
		return fmt.Sprintf("%s 10.0.0.1:6379@16379,host %s - 0 0 1 connected %s\n", id, flags, slots)
	}
	a := viewOf(line("a", "myself,master", "0-8000 [7->-b] [9-<-c]") + line("b", "master", "8001-16382 16383") + line("r", "slave", ""))
	b := viewOf(line("a", "master", "0-8000") + line("b", "myself,master", "8001-16382 16383"))
	r := viewOf(line("a", "master", "0-8000") + line("b", "master", "8001-16382 16383") + line("r", "myself,slave", ""))
	stale := viewOf(line("a", "master", "0-8000") + line("b", "myself,master", "8001-16383"))
	gap := viewOf(line("a", "myself,master", "0-8000"))
	if a.self != "a" || !slices.Equal(a.open, []string{"b", "c"}) {
		t.Errorf("a view: %+v", a)
	}
	moving := b
	moving.open = []string{"a"}
	still := a
	still.open = nil
	for _, test := range []struct {
		what    string
		views   []view
		open    bool
		allowed bool
	}{
		{"all agree", []view{still, b, still, b}, false, true},
		{"an open slot", []view{still, moving, still, moving}, true, true},
		{"a slot goes to one that was not asked", []view{a, b}, true, false},
		{"a master was not asked", []view{still, still}, false, false},
		{"a replica was asked instead", []view{still, r}, false, false},
		{"they do not agree", []view{still, stale}, false, false},
		{"a part of the slots", []view{gap}, false, false},
		{"nobody was asked", nil, false, false},
	} {
		if open, err := agree(test.views); (err == nil) != test.allowed || err == nil && open != test.open {
			t.Errorf("%s: open %v, %v", test.what, open, err)
		}
	}
}
