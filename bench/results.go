package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/internal/compare/report"
)

// schema is the version of the JSON form. It changes when a field changes its meaning
// or goes away.
const schema = 2

// results are what a run has measured.
type results struct {
	Schema   int               `json:"schema"`
	Taken    time.Time         `json:"taken"`
	Command  string            `json:"command"`
	Commit   string            `json:"commit"` // of distlock; with a plus if there were changes
	Machine  report.Machine    `json:"machine"`
	Params   report.Params     `json:"params"`             // but for what a workload changes
	Idle     float64           `json:"idle"`               // the least part of the processors that the run got when it looked
	Together float64           `json:"together,omitempty"` // the least of what a processor did beside the others, as a part of what one did alone
	Versions map[string]string `json:"versions"`
	Stores   []*measured       `json:"stores"`
	Scale    *scaled           `json:"scale,omitempty"` // of a run of its own
}

// measured is what was measured on a store: contenders in the form of compare.
type measured struct {
	ID         string            `json:"id"`
	Title      string            `json:"title"`
	Commit     string            `json:"commit,omitempty"` // if it was measured again, later than the others
	Server     string            `json:"server"`
	Contenders []*report.Backend `json:"contenders"` // ours first, the bare commands last
	Crowds     []*crowd          `json:"crowds"`     // by clients on one name
	Held       []heldPoint       `json:"held"`       // ours, by locks held
	Profiles   []profiled        `json:"profiles"`   // of goals that are missed
}

// with returns r with the stores of a later run instead of its own.
func (r *results) with(later *results) *results {
	for _, m := range later.Stores {
		m.Commit = later.Commit
		if i := slices.IndexFunc(r.Stores, func(old *measured) bool { return old.ID == m.ID }); i >= 0 {
			r.Stores[i] = m
		} else {
			r.Stores = append(r.Stores, m)
		}
	}
	r.Idle, r.Together = min(r.Idle, later.Idle), leastKnown(r.Together, later.Together)
	return r
}

// crowd is what some clients on one name get, a value a round.
type crowd struct {
	Contender string        `json:"contender"`
	Clients   int           `json:"clients"`
	Rate      report.Series `json:"rate"`
	Jain      report.Series `json:"jain"`
	Failed    string        `json:"failed,omitempty"`
}

// crowdOf returns what n clients of a contender get, and makes it if it is not there.
func (m *measured) crowdOf(contender string, n int) *crowd {
	for _, c := range m.Crowds {
		if c.Contender == contender && c.Clients == n {
			return c
		}
	}
	c := &crowd{Contender: contender, Clients: n}
	m.Crowds = append(m.Crowds, c)
	return c
}

// add adds a round.
func (c *crowd) add(b *report.Backend) {
	c.Rate = append(c.Rate, b.Figures[report.HotRate]...)
	c.Jain = append(c.Jain, b.Figures[report.HotJain]...)
	if why := b.Failed["hot"]; why != "" {
		c.Failed = why
	}
}

// heldPoint is what so many held locks cost.
type heldPoint struct {
	Locks   int                             `json:"locks"`
	Figures map[report.Figure]report.Series `json:"figures"`
	Failed  string                          `json:"failed,omitempty"`
}

func newResults(args []string) *results {
	head := report.New(report.Params{})
	return &results{
		Schema: schema, Taken: head.Started.UTC().Truncate(time.Second), Machine: head.Machine, Commit: commit(), Idle: 1,
		Command: strings.Join(append([]string{"go run ."}, args...), " "), Versions: versions(),
	}
}

// versions returns those of the peers' modules in this program.
func versions() map[string]string {
	v := make(map[string]string)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if slices.ContainsFunc(peers.All, func(p peers.Peer) bool { return p.Module == d.Path }) {
				v[d.Path] = d.Version
			}
		}
	}
	return v
}

// commit returns the last commit that has changed what is measured, with a plus if
// there are changes since, or nothing where there is no repository. The benchmarks
// themselves are left out.
func commit() string {
	code := []string{"--", ":(top,glob)**/*.go", ":(top,glob)**/*.lua", ":(top,glob)**/*.sql", ":(top)go.mod", ":(top,exclude)bench"}
	id, err := exec.Command("git", append([]string{"log", "-1", "--format=%h", "--abbrev=12"}, code...)...).Output()
	if err != nil {
		return ""
	}
	changed, err := exec.Command("git", append([]string{"status", "--porcelain", "--untracked-files=no"}, code...)...).Output()
	if err == nil && len(changed) > 0 {
		return strings.TrimSpace(string(id)) + "+"
	}
	return strings.TrimSpace(string(id))
}

// login returns user and password of a URL.
func login(rawURL string) (user, password string, err error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "", "", err
	}
	password, _ = u.User.Password()
	return u.User.Username(), password, nil
}

// merge adds the round of one job to the figures of a contender.
func merge(all, one *report.Backend) {
	if all.Figures == nil {
		all.Figures = make(map[report.Figure]report.Series)
		all.Traffic, all.Failed = make(map[string]report.Traffic), make(map[string]string)
		all.Curves = make(map[string]report.Curve)
	}
	for f, s := range one.Figures {
		all.Figures[f] = append(all.Figures[f], s...)
	}
	for id, t := range one.Traffic {
		all.Traffic[id] = t
	}
	for id, c := range one.Curves {
		all.Curves[id] = c
	}
	for id, why := range one.Failed {
		all.Failed[id] = why
	}
}

// median returns what stands for the rounds of a figure, and whether there are any.
func median(b *report.Backend, f report.Figure) (float64, bool) { return f.Of(b.Figures[f]) }

// paired returns one series by another, round by round. Where a round of one has failed, it is not known which are of the same
// round, and it is the ratio of the medians.
func paired(a, b report.Series, gap bool) report.Series {
	if gap && len(a) > 0 && len(b) > 0 {
		m, _ := a.Median()
		n, _ := b.Median()
		a, b = report.Series{m}, report.Series{n}
	}
	return a.Ratio(b)
}

// rounds is paired for figures, which have a value for each round that has not failed.
func rounds(a, b report.Series) report.Series { return paired(a, b, len(a) != len(b)) }

// to returns the rates of one crowd by those of another.
func (c *crowd) to(other *crowd) report.Series {
	return paired(c.Rate, other.Rate, c.Failed+other.Failed != "")
}

func readResults(path string) (*results, error) {
	r := new(results)
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err == nil && r.Schema != schema {
		err = fmt.Errorf("its schema is %d, this program knows %d", r.Schema, schema)
	}
	if err != nil {
		return nil, fmt.Errorf("results: %s: %w", path, err)
	}
	return r, nil
}

// save writes the results, all of them or none.
func (r *results) save(path string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return os.Rename(temp, path)
}
