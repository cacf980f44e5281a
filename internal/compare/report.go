package compare

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// Schema is the version of the JSON form of a Report. It changes when a field
// changes its meaning or goes away; new fields may come without notice.
const Schema = 1

// Report is what a run has found.
type Report struct {
	Schema int `json:"schema"`
	// Problems are what a reader must know before the rest: see [Report.Warnings]. They
	// are filled in where the report is written, and ignored where it is read.
	Problems    []string   `json:"problems,omitempty"`
	Started     time.Time  `json:"started"`
	Finished    time.Time  `json:"finished"`
	Interrupted bool       `json:"interrupted,omitempty"`
	Command     []string   `json:"command"` // redacted
	Machine     Machine    `json:"machine"`
	Params      Params     `json:"params"`
	Backends    []*Backend `json:"backends"`
	// Missing are the backends that were asked for and could not be had, with the reason.
	Missing map[string]string `json:"missing,omitempty"`
}

// Machine says where a run took place.
type Machine struct {
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Go      string `json:"go"`
	CPUs    int    `json:"cpus"`          // that the process may use
	CPU     string `json:"cpu,omitempty"` // model, where the system tells it
	Version string `json:"version"`       // of distlock
}

// Backend is what was measured on one backend.
type Backend struct {
	Name         string            `json:"name"`
	URL          string            `json:"url"` // redacted
	Origin       string            `json:"origin"`
	Version      string            `json:"version"`
	BareCommands string            `json:"bare_commands,omitempty"`
	Figures      map[Figure]Series `json:"figures"`
	Failed       map[string]string `json:"failed,omitempty"` // workload: why

	// Unmeasured says why figures are missing that could not be taken here, which is
	// no failure: by workload, or under "requests" of those that count them.
	Unmeasured map[string]string `json:"unmeasured,omitempty"`
	// Notes say what a reader of the figures must know of this server.
	Notes []string `json:"notes,omitempty"`
	// Touched is what of the server the run has used, and whether it was removed.
	Touched string `json:"touched,omitempty"`

	Facts         []Fact                  `json:"facts,omitempty"`
	Safety        map[Hazard]Outcome      `json:"safety,omitempty"`
	Distributions map[string]Distribution `json:"distributions,omitempty"` // by workload: "solo", "hot", "handoff", "arrivals"
	Curves        map[string]Curve        `json:"curves,omitempty"`        // "hot_by_clients", "parallel_by_names", "held_memory"
	Traffic       map[string]Traffic      `json:"traffic,omitempty"`       // "new_name", "known_name"
}

// Series is one value for each round.
type Series []float64

// Median returns the middle value, and false if nothing was measured.
func (s Series) Median() (float64, bool) {
	if len(s) == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(s))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid], true
	}
	return (sorted[mid-1] + sorted[mid]) / 2, true
}

// Spread returns half of the distance between the extremes, as a part of the
// median: 0.1 reads "give or take ten per cent".
func (s Series) Spread() float64 {
	m, ok := s.Median()
	if !ok || m == 0 {
		return 0
	}
	return (slices.Max(s) - slices.Min(s)) / 2 / m
}

// Ratio returns the median of s by t, round by round: what two series taken in
// alternation say about each other, less what the machine did in between.
func (s Series) Ratio(t Series) Series {
	var r Series
	for i := range min(len(s), len(t)) {
		if t[i] != 0 {
			r = append(r, s[i]/t[i])
		}
	}
	return r
}

func newReport(p Params) *Report {
	return &Report{
		Schema:  Schema,
		Started: time.Now(),
		Command: redactCommand(os.Args),
		Machine: Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(),
			CPUs: runtime.GOMAXPROCS(0), CPU: cpuModel("/proc/cpuinfo"), Version: Version()},
		Params:  p,
		Missing: make(map[string]string),
	}
}

// version is set by the linker where the sources are not those of a git commit, from
// which Go would take it.
var version string

// Version returns the version of distlock that this program was built from.
func Version() string {
	built := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		built = info.Main.Version
	}
	return cmp.Or(version, built, "(devel)")
}

// Err returns an error if a workload failed on a backend, or the contract was broken.
func (r *Report) Err() error {
	var errs []error
	for _, b := range r.Backends {
		if len(b.Failed) > 0 {
			errs = append(errs, fmt.Errorf("%s failed on %s", plural(len(b.Failed), "workload"), b.Name))
		}
		for _, h := range r.hazards() {
			if b.Safety[h].Verdict == Bad {
				errs = append(errs, fmt.Errorf("%s broke the contract: %s", b.Name, hazardOf(h).title))
			}
		}
	}
	return errors.Join(errs...)
}
