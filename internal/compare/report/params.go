package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Params are the knobs of a run.
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

	// Hold is how long a lock is held, by sleeping, between Lock and Unlock, in the
	// workloads parallel, hot, arrivals and try. In waiting it is as long as the others
	// wait, but no less than half of Duration. Rates include it: one client that holds
	// for 10 ms cannot lock more than a hundred times a second.
	Hold time.Duration `json:"hold_ns"`

	// Rate is how many calls to Lock begin a second in the workload arrivals, whether
	// or not earlier ones have ended.
	Rate float64 `json:"rate_per_s"`
}

// Workload is something to do on a backend for a while. What it does is in package
// measure.
type Workload struct{ ID, Title string }

// Workloads in their running order.
var Workloads = []Workload{
	{"bare", "bare commands"},
	{"bare_parallel", "bare commands in parallel"},
	{"solo", "one after the other"},
	{"parallel", "many names in parallel"},
	{"hot", "many clients, one name"},
	{"handoff", "hand-off"},
	{"waiting", "many waiting"},
	{"try", "many try at once"},
	{"arrivals", "arrivals at a rate"},
	{"hot_by_clients", "one name by clients"},
	{"parallel_by_names", "parallel by names"},
	{"failover", "holder cut off"},
	{"held", "many held"},
	{"traffic", "traffic"},
}

// WorkloadIDs returns the IDs of all workloads, in their running order.
func WorkloadIDs() []string {
	var ids []string
	for _, w := range Workloads {
		ids = append(ids, w.ID)
	}
	return ids
}

// WorkloadTitle returns the title of a workload, or for an unknown one its ID in words.
func WorkloadTitle(id string) string {
	if i := slices.Index(WorkloadIDs(), id); i >= 0 {
		return Workloads[i].Title
	}
	return strings.ReplaceAll(id, "_", " ")
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
		if !slices.Contains(WorkloadIDs(), id) {
			return fmt.Errorf("the workload %q is not known, allowed are %s", id, strings.Join(WorkloadIDs(), ", "))
		}
	}
	return nil
}
