package result

import "github.com/distlock-go/distlock/internal/servers"

// The names of the contenders that goals are measured by; a test compares them
// with those in package peers.
const (
	bsm      = "bsm/redislock"
	redsync1 = "redsync, 1 node"
	rueidis  = "rueidislock"
	getLock  = "GET_LOCK"
	table    = "polled table"
	zkLock   = "go-zookeeper Lock"
	session  = "etcd Mutex, session per lock"
	shared   = "etcd Mutex, shared session"

	bareRedis = "bare SET NX PX + EVALSHA"
	bareMySQL = "bare upsert + UPDATE"
	bareZK    = "bare create + delete"
	bareEtcd  = "bare put + delete"
)

// kib is the most that a held lock may cost in the client, where heldRow are held.
const (
	kib     = 1024
	heldRow = "held10000"
)

// Goals are what is to be reached, row by row.
var Goals = []Goal{
	{"requests per free lock+unlock", servers.Redis, []check{atMost(2, "requests", Known), atMost(2, "requests", New)}},
	{"requests per free lock+unlock", servers.MySQL, []check{atMost(2, "requests", Known), atMost(2, "requests", New)}},
	{"requests per free lock+unlock", servers.ZooKeeper, []check{atMost(2, "requests", Known), atMost(3, "requests", New)}},
	{"requests per free lock+unlock", servers.Etcd, []check{atMost(2, "requests", Known), atMost(2, "requests", New)}},

	{"solo, by the bare commands", servers.Redis, []check{atLeast(0.9, "solo", Rate, bareRedis)}},
	{"solo, by the bare commands", servers.MySQL, []check{atLeast(0.9, "solo", Rate, bareMySQL)}},
	{"solo, by the bare commands", servers.ZooKeeper, []check{atLeast(0.9, "solo", Rate, bareZK)}},
	{"solo, by the bare commands", servers.Etcd, []check{atLeast(0.9, "solo", Rate, bareEtcd)}},

	{"solo, by the best peer", servers.Redis, []check{atLeast(1, "solo", Rate, redsync1, bsm, rueidis)}},
	{"solo, by the best peer", servers.MySQL, []check{atLeast(1, "solo", Rate, table)}},
	{"solo, by the best peer", servers.ZooKeeper, []check{atLeast(1.2, "solo", Rate, zkLock)}},
	{"solo, by the best peer", servers.Etcd, []check{atLeast(2, "solo", Rate, session), atLeast(1, "solo", Rate, shared)}},

	{"64 names in parallel, by the best peer", servers.Redis, []check{atLeast(1, "parallel", Rate, redsync1, bsm, rueidis)}},
	{"64 names in parallel, by the best peer", servers.MySQL, []check{atLeast(1, "parallel", Rate, table)}},
	{"64 names in parallel, by the best peer", servers.ZooKeeper, []check{atLeast(1.5, "parallel", Rate, zkLock)}},
	{"64 names in parallel, by the best peer", servers.Etcd, []check{atLeast(1, "parallel", Rate, session, shared)}},

	{"hand-off, median", servers.Redis, []check{atMost(0.8, "handoff", P50, rueidis),
		timesFaster(100, "handoff", P50, bsm), timesFaster(100, "handoff", P50, redsync1)}},
	{"hand-off, median", servers.MySQL, []check{atMost(2.5, "handoff", P50, getLock), timesFaster(25, "handoff", P50, table)}},
	{"hand-off, median", servers.ZooKeeper, []check{atMost(0.9, "handoff", P50, zkLock)}},
	{"hand-off, median", servers.Etcd, []check{timesFaster(8, "handoff", P50, session, shared)}},

	{"16 and 64 clients, one name", servers.Redis, hotGoals(1.5, rueidis)},
	{"16 and 64 clients, one name", servers.MySQL, hotGoals(1, table)},
	{"16 and 64 clients, one name", servers.ZooKeeper, hotGoals(1.2, zkLock)},
	{"16 and 64 clients, one name", servers.Etcd, hotGoals(5, session, shared)},

	{"requests a second of a waiting process", servers.Redis, waitingGoals},
	{"requests a second of a waiting process", servers.MySQL, waitingGoals},
	{"requests a second of a waiting process", servers.ZooKeeper, waitingGoals},
	{"requests a second of a waiting process", servers.Etcd, waitingGoals},

	{"10,000 held: requests/s, bytes, goroutines each", servers.Redis, heldGoals(20)},
	{"10,000 held: requests/s, bytes, goroutines each", servers.MySQL, heldGoals(20)},
	{"10,000 held: requests/s, bytes, goroutines each", servers.ZooKeeper, heldGoals(1)},
	{"10,000 held: requests/s, bytes, goroutines each", servers.Etcd, heldGoals(1)},

	{"held for a minute: locks, lost", servers.Redis, minuteGoals("minute100000", 100000)},
	{"held for a minute: locks, lost", servers.MySQL, minuteGoals("minute10000", 10000)},
	{"held for a minute: locks, lost", servers.ZooKeeper, minuteGoals("minute10000", 10000)},
	{"held for a minute: locks, lost", servers.Etcd, minuteGoals("minute100000", 100000)},

	{"10,000 goroutines wait: served, places late, requests", servers.Redis, crowdGoals},
	{"10,000 goroutines wait: served, places late, requests", servers.MySQL, crowdGoals},
	{"10,000 goroutines wait: served, places late, requests", servers.ZooKeeper, crowdGoals},
	{"10,000 goroutines wait: served, places late, requests", servers.Etcd, crowdGoals},
}

func hotGoals(factor float64, versus ...string) []check {
	return []check{
		atLeast(0.95, "hot16", Jain), atLeast(0.95, "hot64", Jain),
		atLeast(factor, "hot16", Rate, versus...), atLeast(factor, "hot64", Rate, versus...),
	}
}

var waitingGoals = []check{atMost(0.2, "waiting16", Each), atMost(0.2, "waiting100", All)}

// A goroutine or two for the whole Locker round to none per lock.
func heldGoals(requests float64) []check {
	return []check{atMost(requests, heldRow, All), atMost(kib, heldRow, Bytes), atMost(0.005, heldRow, Gos)}
}

func minuteGoals(row string, locks float64) []check {
	return []check{atLeast(locks, row, Count), atMost(0, row, Lost)}
}

// crowdGoals: few requests, as only the first of a process waits in the store. A
// thread that is put aside between its coming and its call is overtaken by some who
// come after it; that is as exact as an order can be told from outside.
var crowdGoals = []check{atLeast(10000, "waiters10000", Serve), atMost(10, "waiters10000", Moved), atMost(10, "waiting10000", Total)}
