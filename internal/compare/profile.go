package compare

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Params are the knobs of a run. Profiles has sets of them that belong together.
type Params struct {
	Profile   string   `json:"profile,omitempty"` // the preset that the other fields started from
	Workloads []string `json:"workloads"`         // IDs of those to run, in the order of the package; see Workloads

	Duration time.Duration `json:"duration_ns"` // of one workload on one backend in one round
	Rounds   int           `json:"rounds"`      // how often the backends take turns
	Clients  int           `json:"clients"`     // Lockers that fight for one name, each with connections of its own
	Names    int           `json:"names"`       // names locked in parallel by one Locker
	Held     int           `json:"held"`        // locks held at the same time by one Locker
	Waiters  int           `json:"waiters"`     // goroutines of one process that wait for one name
	TTL      time.Duration `json:"ttl_ns"`

	// Hold is how long a lock is held, by sleeping, between Lock and Unlock: in the
	// workloads parallel, hot, arrivals and try, and in waiting as long as the others
	// wait, but there no less than half of Duration. Rates include it: one client
	// that holds for 10 ms cannot lock more than a hundred times a second.
	Hold time.Duration `json:"hold_ns"`

	// Rate is how many calls of Lock begin a second in the workload arrivals, whether
	// or not earlier ones have ended.
	Rate float64 `json:"rate_per_s"`
}

// Check returns an error that names the first parameter that makes no sense.
func (p Params) Check() error {
	switch {
	case p.Duration < 50*time.Millisecond || p.Duration > time.Hour:
		return fmt.Errorf("duration is %v, allowed are 50ms to 1h", p.Duration)
	case p.Rounds < 1 || p.Rounds > 100:
		return fmt.Errorf("rounds is %d, allowed are 1 to 100", p.Rounds)
	case p.Clients < 2 || p.Clients > 1000:
		return fmt.Errorf("clients is %d, allowed are 2 to 1000", p.Clients)
	case p.Names < 1 || p.Names > 10_000:
		return fmt.Errorf("names is %d, allowed are 1 to 10000", p.Names)
	case p.Held < 1 || p.Held > 100_000:
		return fmt.Errorf("held is %d, allowed are 1 to 100000", p.Held)
	case p.Waiters < 1 || p.Waiters > 100_000:
		return fmt.Errorf("waiters is %d, allowed are 1 to 100000", p.Waiters)
	case p.TTL < 2*time.Second || p.TTL > time.Hour:
		return fmt.Errorf("ttl is %v, allowed are 2s to 1h", p.TTL)
	case p.Hold < 0 || p.Hold > time.Minute:
		return fmt.Errorf("hold is %v, allowed are 0s to 1m", p.Hold)
	case !(p.Rate >= 0 && p.Rate <= 100_000): // also not a number
		return fmt.Errorf("rate is %v, allowed are 0 to 100000 a second", p.Rate)
	case p.Rate == 0 && slices.Contains(p.Workloads, "arrivals"):
		return fmt.Errorf("rate is 0, allowed for the workload arrivals are more than 0 to 100000 a second")
	}
	for _, id := range p.Workloads {
		if !slices.Contains(Workloads(), id) {
			return fmt.Errorf("the workload %q is not known, allowed are %s", id, strings.Join(Workloads(), ", "))
		}
	}
	return nil
}

// A Profile is a preset for one use of locks: parameters, and which workloads tell
// something about it.
type Profile struct {
	Name   string
	About  string // one line, for --help
	Params Params
}

// Profiles are the presets; the first is the default.
var Profiles = []Profile{
	{"standard", "all workloads but arrivals, try and failover", Params{
		Workloads: []string{"bare", "solo", "parallel", "hot", "handoff", "waiting", "hot_by_clients", "parallel_by_names", "held", "traffic"},
		Duration:  time.Second, Rounds: 3, Clients: 16, Names: 64, Held: 1000, Waiters: 200,
		// The longest TTL that ZooKeeper takes with its default ticks is about 24 s.
		TTL: 20 * time.Second,
	}},
	{"quick", "a first look within a minute: short rounds, few clients", Params{
		Workloads: []string{"bare", "solo", "parallel", "hot", "handoff", "waiting", "traffic"},
		Duration:  300 * time.Millisecond, Rounds: 2, Clients: 8, Names: 16, Held: 200, Waiters: 50, TTL: 20 * time.Second,
	}},
	{"cron", "one of several hosts runs each job: few names, long holds, TryLock and no waiting", Params{
		Workloads: []string{"bare", "solo", "try", "traffic"},
		Duration:  2 * time.Second, Rounds: 3, Clients: 4, Names: 8, Held: 8, Waiters: 4, TTL: 20 * time.Second, Hold: time.Second,
	}},
	{"checkout", "many names, short holds, calls that arrive at a rate whether or not earlier ones are done", Params{
		Workloads: []string{"bare", "solo", "parallel", "parallel_by_names", "traffic", "arrivals"},
		Duration:  2 * time.Second, Rounds: 3, Clients: 16, Names: 500, Held: 1000, Waiters: 16, TTL: 20 * time.Second,
		Hold: 5 * time.Millisecond, Rate: 200,
	}},
	{"leader", "one name, many that wait, a long hold; how soon another leads after a hand-over, or a leader cut off", Params{
		Workloads: []string{"handoff", "waiting", "failover", "traffic"},
		Duration:  time.Second, Rounds: 2, Clients: 5, Names: 1, Held: 1, Waiters: 50, TTL: 6 * time.Second, Hold: 4 * time.Second,
	}},
}

// ProfileParams returns the parameters of a profile.
func ProfileParams(name string) (Params, error) {
	var names []string
	for _, f := range Profiles {
		if f.Name == name {
			p := f.Params
			p.Profile, p.Workloads = f.Name, slices.Clone(p.Workloads)
			return p, nil
		}
		names = append(names, f.Name)
	}
	return Params{}, fmt.Errorf("the profile %q is not known, allowed are %s", name, strings.Join(names, ", "))
}

// Workloads returns the IDs of all workloads, in the order in which they run.
func Workloads() []string {
	var ids []string
	for _, w := range workloads {
		ids = append(ids, w.id)
	}
	return ids
}
