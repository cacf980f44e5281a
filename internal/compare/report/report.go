// Package report is what a comparison has found, as data: package measure fills in the
// figures, package hazard the outcomes, and package render shows them.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"
)

// Schema is the version of the JSON form of a Report. It changes when a field
// changes its meaning or goes away; new fields may come without notice.
const Schema = 1

// Report is what a run has found.
type Report struct {
	Schema int `json:"schema"`
	// Problems are what a reader must know before the rest. They are filled in where the
	// report is written, and ignored where it is read.
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

	// Unmeasured says why figures are missing here without a failure: by workload, or
	// under "requests" for those that count them, "server_cpu", "memory_of_a_held_lock".
	Unmeasured map[string]string `json:"unmeasured,omitempty"`
	// Notes say what a reader of the figures must know of this server.
	Notes []string `json:"notes,omitempty"`
	// Touched is what of the server the run has used, and whether it was removed.
	Touched string `json:"touched,omitempty"`
	// Left says what of it could not be removed, and why. It is empty if nothing is left.
	Left string `json:"left,omitempty"`

	Facts         []Fact                  `json:"facts,omitempty"`
	Safety        map[Hazard]Outcome      `json:"safety,omitempty"`
	Distributions map[string]Distribution `json:"distributions,omitempty"` // by workload: "solo", "hot", "handoff", "arrivals"
	Curves        map[string]Curve        `json:"curves,omitempty"`        // "hot_by_clients", "parallel_by_names", "held_memory"
	Traffic       map[string]Traffic      `json:"traffic,omitempty"`       // "new_name", "known_name"
}

// New returns a report on a run of this program on this machine. The run begins now.
func New(p Params) *Report {
	return &Report{
		Schema:  Schema,
		Started: time.Now(),
		Command: redactCommand(os.Args),
		Machine: Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(),
			CPUs: runtime.GOMAXPROCS(0), CPU: cpuModel("/proc/cpuinfo")},
		Params:  p,
		Missing: make(map[string]string),
	}
}

// Fail records that something of a backend did not work.
func (b *Backend) Fail(what string, err error) {
	if b.Failed == nil {
		b.Failed = make(map[string]string)
	}
	b.Failed[what] = err.Error()
}

// Read reads what was written as JSON. A report of another schema is refused: its
// fields may mean something else.
func Read(rd io.Reader) (*Report, error) {
	text, err := io.ReadAll(rd)
	if err != nil {
		return nil, err
	}
	var head struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("not a report of distlock compare --json: %w", err)
	}
	if head.Schema != Schema {
		return nil, fmt.Errorf("the report has schema %d, this version reads %d: measure it again", head.Schema, Schema)
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("not a report of distlock compare --json: %w", err)
	}
	r.Backends = slices.DeleteFunc(r.Backends, func(b *Backend) bool { return b == nil })
	return r, nil
}
