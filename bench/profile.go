package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/distlock-go/distlock/internal/compare/report"
)

func (m *measured) contender(name string) *report.Backend {
	i := slices.IndexFunc(m.Contenders, func(b *report.Backend) bool { return b.Name == name })
	if i < 0 {
		return nil
	}
	return m.Contenders[i]
}

// profiled is where the time of the processors goes in the client.
type profiled struct {
	Contender string             `json:"contender"`
	Workload  string             `json:"workload"`
	Samples   int64              `json:"samples"`
	Shares    map[string]float64 `json:"shares"` // by part
}

// The parts of a client's time.
const (
	network = "system calls" // but for those of the scheduler: reads and writes
	sched   = "scheduler"    // of goroutines and threads: wakes them up, has them wait
	memory  = "memory"       // allocation, garbage collection, stacks that grow
	library = "client library"
	locking = "driver" // or what the peer is
	engine  = "engine"
	rest    = "rest" // the workload itself, mostly
)

var parts = []string{network, sched, memory, library, locking, engine, rest}

// The first that fits a function counts. Those of the standard library fit none: their
// time is that of the caller.
var partOf = []struct {
	part   string
	prefix []string
}{
	{locking, []string{
		"github.com/distlock-go/distlock/redislock", "github.com/distlock-go/distlock/mysqllock", "github.com/distlock-go/distlock/pglock",
		"github.com/distlock-go/distlock/zklock",
		"github.com/distlock-go/distlock/etcdlock", "github.com/distlock-go/distlock/bench/peers", "github.com/bsm/redislock", "github.com/go-redsync/",
		"github.com/redis/rueidis/rueidislock", "github.com/go-zookeeper/zk.(*Lock)", "cirello.io/pglock", "go.etcd.io/etcd/client/v3/concurrency"}},
	{engine, []string{"github.com/distlock-go/distlock/driver", "github.com/distlock-go/distlock."}},
	{rest, []string{"github.com/distlock-go/distlock/"}},
	{library, []string{"github.com/", "go.etcd.io/", "google.golang.org/", "golang.org/x/", "database/sql."}},
}

var (
	systemCall = regexp.MustCompile(`^(syscall\.|internal/runtime/syscall)`)
	ofRuntime  = regexp.MustCompile(`^(runtime|internal/runtime/[a-z]+)\.`)
	ofMemory   = regexp.MustCompile(`^runtime\.(\(\*(m(heap|cache|central|span)|gc)|malloc|newobject|makeslice|growslice|gc|bg|newstack|copystack|scan|grey|sweep)`)
	ofSched    = regexp.MustCompile(`^runtime\.(futex|wake|startm|schedule|findRunnable|park|mcall|gopark|goready|ready|newproc|netpoll|chan|closechan|select|` +
		`lock|unlock|sem|steal|usleep|osyield|note|mstart|sysmon|goexit|gdestroy|execute|casgstatus|\(\*timer|reset|entersyscall|exitsyscall|preempt|stopm|runq)`)
)

// part returns the part that a stack belongs to; the innermost function comes first.
func part(stack []string) string {
	inRuntime, called := "", false
	for _, f := range stack {
		switch {
		case systemCall.MatchString(f):
			called = true
		case ofMemory.MatchString(f):
			return memory
		case ofSched.MatchString(f):
			inRuntime = sched // unless it is for memory
		case ofRuntime.MatchString(f):
		case inRuntime != "":
			return inRuntime
		case called:
			return network
		default:
			for _, p := range partOf {
				if slices.ContainsFunc(p.prefix, func(prefix string) bool { return strings.HasPrefix(f, prefix) }) {
					return p.part
				}
			}
		}
	}
	return cmp.Or(inRuntime, rest)
}

// readProfile sums up a profile by parts.
func readProfile(path string) (samples int64, shares map[string]float64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		return 0, nil, fmt.Errorf("profile: %w", err)
	}
	shares = make(map[string]float64)
	for _, s := range p.Sample {
		var stack []string
		for _, l := range s.Location {
			for _, line := range l.Line {
				stack = append(stack, line.Function.Name)
			}
		}
		shares[part(stack)] += float64(s.Value[0])
		samples += s.Value[0]
	}
	for part := range shares {
		shares[part] /= float64(samples)
	}
	return samples, shares, nil
}

// explain profiles ours and the rival where a goal is missed. That takes rounds of their
// own: their figures do not count.
func (r *run) explain(ctx context.Context, st store, cs []*contender, m *measured) error {
	dir, err := os.MkdirTemp("", "distlock-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, g := range goals {
		if _, yes, known := g.reached(m); g.store != st.id || yes || !known {
			continue
		}
		for _, who := range [][2]string{{ours, g.workload}, {g.rival, g.theirs}} {
			if m.profile(who[0], who[1]) != nil {
				continue
			}
			c := cs[slices.IndexFunc(cs, func(c *contender) bool { return c.peer.Name == who[0] })]
			fmt.Fprintf(r.log, "%s %s: %s, %s, profile\n", r.clock(), st.id, who[1], who[0])
			j := r.newJob(st, c, workload{ids: []string{who[1]}, change: func(p *report.Params) { p.Duration *= profileFor(who[1]) }})
			j.Profile = filepath.Join(dir, "cpu.prof")
			_, err := j.do(ctx)
			p := profiled{Contender: who[0], Workload: who[1]}
			if err == nil {
				p.Samples, p.Shares, err = readProfile(j.Profile)
			}
			if err != nil {
				return err
			}
			m.Profiles = append(m.Profiles, p)
		}
	}
	return nil
}

// profileFor is how many times as long as a round a profile takes: there are 100 samples to
// a second of a processor, and hand-offs hardly use one.
func profileFor(workload string) time.Duration {
	if workload == "handoff" {
		return 15
	}
	return 3
}

func (m *measured) profile(contender, workload string) *profiled {
	for i, p := range m.Profiles {
		if p.Contender == contender && p.Workload == workload {
			return &m.Profiles[i]
		}
	}
	return nil
}
