package measure

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// A Profile is a preset for one use of locks: parameters, and the workloads with
// something to tell about it.
type Profile struct {
	Name   string
	About  string // one line, for --help
	Params report.Params
}

// Profiles are the presets; the first is the default.
var Profiles = []Profile{
	{"standard", "all workloads but arrivals, try and failover", report.Params{
		Workloads: []string{"bare", "bare_parallel", "solo", "parallel", "hot", "handoff", "waiting", "hot_by_clients", "parallel_by_names", "held", "traffic"},
		Duration:  time.Second, Rounds: 3, Clients: 16, Names: 64, Held: 1000, Waiters: 200,
		// The longest TTL that ZooKeeper takes with its default ticks is about 24 s.
		TTL: 20 * time.Second,
	}},
	{"quick", "a first look, with --safety=false within a minute: short rounds, few clients", report.Params{
		Workloads: []string{"bare", "bare_parallel", "solo", "parallel", "hot", "handoff", "waiting", "traffic"},
		Duration:  200 * time.Millisecond, Rounds: 3, Clients: 8, Names: 16, Held: 200, Waiters: 50, TTL: 20 * time.Second,
	}},
	{"cron", "one of several hosts runs each job: few names, long holds, TryLock and no waiting", report.Params{
		Workloads: []string{"bare", "bare_parallel", "solo", "try", "traffic"},
		Duration:  2 * time.Second, Rounds: 3, Clients: 4, Names: 8, Held: 8, Waiters: 4, TTL: 20 * time.Second, Hold: time.Second,
	}},
	{"checkout", "many names, short holds, calls that arrive at a rate whether or not earlier ones are done", report.Params{
		Workloads: []string{"bare", "bare_parallel", "solo", "parallel", "parallel_by_names", "traffic", "arrivals"},
		Duration:  2 * time.Second, Rounds: 3, Clients: 16, Names: 500, Held: 1000, Waiters: 16, TTL: 20 * time.Second,
		Hold: 5 * time.Millisecond, Rate: 200,
	}},
	{"leader", "one name, many that wait, a long hold; how soon another leads after a hand-over, or a leader cut off", report.Params{
		Workloads: []string{"handoff", "waiting", "failover", "traffic"},
		Duration:  time.Second, Rounds: 2, Clients: 5, Names: 1, Held: 1, Waiters: 50, TTL: 6 * time.Second, Hold: 4 * time.Second,
	}},
}

// ProfileParams returns the parameters of a profile.
func ProfileParams(name string) (report.Params, error) {
	var names []string
	for _, f := range Profiles {
		if f.Name == name {
			p := f.Params
			p.Profile, p.Workloads = f.Name, slices.Clone(p.Workloads)
			return p, nil
		}
		names = append(names, f.Name)
	}
	return report.Params{}, fmt.Errorf("the profile %q is not known, allowed are %s", name, strings.Join(names, ", "))
}
