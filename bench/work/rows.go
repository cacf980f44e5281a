package work

import (
	"context"
	"slices"
	"time"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/internal/servers"
)

// Kind is how the jobs of a row are run.
type Kind int

// The kinds.
const (
	Timed   Kind = iota // in rounds, one contender after the other
	Counted             // once, all contenders at the same time: what is counted does not depend on speed
	Heavy               // once, one contender after the other
)

// Row is one workload and its size.
type Row struct {
	ID    string
	Title string
	Kind  Kind
	Share float64 // of the duration of a run; 1 if zero
	// Least is for workloads that wait for periods of their own: they are measured
	// for so long at the least, but in a quick run.
	Least   time.Duration
	Metered bool
	TTL     time.Duration // instead of the default
	Slow    bool          // left out of a quick run
	// Profiled rows are run once more, for a CPU profile of ours and of the best peer.
	Profiled bool
	takes    func(c peers.Contender) bool
	run      func(ctx context.Context, s *session) (Figures, error)
}

// DefaultTTL is that of all rows that do not say otherwise.
const DefaultTTL = 30 * time.Second

// heldTTL makes renewals frequent enough to be counted in little time: over whole
// periods of a third of it.
const heldTTL = 10 * time.Second

// Rows in the order in which they run and are shown.
var Rows = []Row{
	{ID: "requests", Title: "requests per lock+unlock", Kind: Counted, Metered: true, takes: locks, run: requests},
	{ID: "solo", Title: "one client, one name", Profiled: true, takes: all, run: solo},
	{ID: "parallel", Title: "64 names in parallel on one client", Profiled: true, takes: all, run: parallel(64)},
	{ID: "hot2", Title: "2 clients, one name", Share: 1.5, takes: locks, run: hot(2)},
	{ID: "hot16", Title: "16 clients, one name", Share: 1.5, Profiled: true, takes: locks, run: hot(16)},
	{ID: "hot64", Title: "64 clients, one name", Share: 2, Profiled: true, takes: locks, run: hot(64)},
	{ID: "handoff", Title: "hand-off to a waiter", Share: 3, Profiled: true, takes: locks, run: handOff},

	{ID: "waiting100", Title: "100 goroutines of one process wait", Kind: Counted, Metered: true, Least: 15 * time.Second, takes: exclusive, run: waitingGoroutines(100)},
	{ID: "waiting16", Title: "16 processes wait, one goroutine each", Kind: Counted, Metered: true, Least: 15 * time.Second, takes: locks, run: waitingClients(16)},
	{ID: "waiting10000", Title: "10,000 goroutines of one process wait", Kind: Heavy, Metered: true, Least: 10 * time.Second, takes: ours, run: waitingGoroutines(10000)},

	{ID: "waiters1", Title: "1 goroutine waits, then is served", Kind: Heavy, takes: exclusive, run: waiters(1)},
	{ID: "waiters100", Title: "100 goroutines wait, then are served", Kind: Heavy, takes: exclusive, run: waiters(100)},
	{ID: "waiters1000", Title: "1,000 goroutines wait, then are served", Kind: Heavy, takes: pushed, run: waiters(1000)},
	{ID: "waiters10000", Title: "10,000 goroutines wait, then are served", Kind: Heavy, takes: ours, run: waiters(10000)},

	{ID: "held1", Title: "1 lock held", Kind: Heavy, Metered: true, Least: heldTTL / 3, TTL: heldTTL, Slow: true, takes: ours, run: held(1)},
	{ID: "held100", Title: "100 locks held", Kind: Heavy, Metered: true, Least: heldTTL / 3, TTL: heldTTL, Slow: true, takes: ours, run: held(100)},
	{ID: "held10000", Title: "10,000 locks held", Kind: Heavy, Metered: true, Least: heldTTL, TTL: heldTTL, takes: locks, run: held(10000)},
	{ID: "minute10000", Title: "10,000 locks held for a minute", Kind: Heavy, Metered: true, Least: time.Minute, TTL: heldTTL, Slow: true,
		takes: oursOn(servers.MySQL, servers.ZooKeeper), run: held(10000)},
	{ID: "minute100000", Title: "100,000 locks held for a minute", Kind: Heavy, Metered: true, Least: time.Minute, TTL: heldTTL, Slow: true,
		takes: oursOn(servers.Redis, servers.Etcd), run: held(100000)},
}

// Find returns the row with the id.
func Find(id string) (Row, bool) {
	i := slices.IndexFunc(Rows, func(r Row) bool { return r.ID == id })
	if i < 0 {
		return Row{}, false
	}
	return Rows[i], true
}

// For returns the contenders that the row is for.
func (r Row) For(backend servers.Kind) []peers.Contender {
	return slices.DeleteFunc(peers.On(backend), func(c peers.Contender) bool { return !r.takes(c) })
}

// Measure returns for how long the row is measured in a run of which one workload
// takes d.
func (r Row) Measure(d time.Duration, quick bool) time.Duration {
	if r.Share > 0 {
		d = time.Duration(float64(d) * r.Share)
	}
	if quick {
		return max(d, r.Least/3)
	}
	return max(d, r.Least)
}

// bound ends a job that hangs: beside what it measures it opens clients, takes
// locks and waits for the last of those who wait.
func (r Row) bound(d time.Duration) time.Duration {
	if r.Kind == Timed {
		return 4*d + 12*time.Second
	}
	return 2*d + 90*time.Second
}

func all(peers.Contender) bool     { return true }
func locks(c peers.Contender) bool { return c.Role != peers.Bare }
func ours(c peers.Contender) bool  { return c.Role == peers.Ours }
func pushed(c peers.Contender) bool {
	return exclusive(c) && !c.Polls && (c.Most == 0 || c.Most > 1000)
}

// exclusive are those that keep the goroutines of one process apart.
func exclusive(c peers.Contender) bool { return locks(c) && !c.Shared }

func oursOn(backends ...servers.Kind) func(peers.Contender) bool {
	return func(c peers.Contender) bool { return ours(c) && slices.Contains(backends, c.Backend) }
}
