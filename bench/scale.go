package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/distlock-go/distlock/internal/compare/measure"
	"github.com/distlock-go/distlock/internal/compare/report"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/servers"
)

// scaled is what "-scale" has measured: very many locks held for long, and very many
// waiters in many processes. Turns, requests, memory and processor time need no idle
// machine; a loss may be one of a machine that is too busy to renew.
type scaled struct {
	Taken   time.Time      `json:"taken"`
	Command string         `json:"command"`
	Commit  string         `json:"commit"`
	Machine report.Machine `json:"machine"`
	Idle    float64        `json:"idle"` // the least part of the processors that the run got when it looked
	Long    []*longHold    `json:"long"`
	Herds   []*herd        `json:"herds"`
}

// scaleSettings are what the command line asks for.
type scaleSettings struct {
	on    bool
	locks int
	hold  time.Duration
}

// scaleTTL is one that ZooKeeper takes with its default ticks.
const scaleTTL = 20 * time.Second

// scale holds on all stores at the same time, since that is mostly waiting. It takes and frees on one after the other, and so
// it does with the waiters: five stores that are kept busy leave each other too little of the processors to renew.
func (r *run) scale(ctx context.Context) error {
	head := newResults(os.Args[1:])
	s := &scaled{Taken: head.Taken, Command: head.Command, Commit: head.Commit, Machine: head.Machine, Idle: 1}
	if old := r.results.Scale; old != nil && r.settings.scale.locks == 0 {
		s.Long = old.Long
	}
	r.results.Scale = s
	looked := func() {
		share, _, _ := spin(300 * time.Millisecond)
		s.Idle = min(s.Idle, share)
	}
	looked()
	var all sync.WaitGroup
	var together turns
	for _, st := range r.stores {
		if st.setUp != nil || r.settings.scale.locks == 0 {
			continue // the same store again, or nothing to hold
		}
		l := &longHold{Store: st.title, Locks: r.settings.scale.locks, TTL: scaleTTL}
		s.Long = append(s.Long, l)
		together.taken.Add(1)
		all.Go(func() {
			if err := r.holdLong(ctx, st, l, &together); err != nil {
				l.Failed = err.Error()
			}
		})
	}
	all.Wait()
	looked()
	for _, st := range r.stores {
		if st.setUp != nil {
			continue
		}
		h := newHerd(st)
		s.Herds = append(s.Herds, h)
		if err := r.gather(ctx, st, h); err != nil {
			h.Failed = err.Error()
		}
		looked()
	}
	return ctx.Err()
}

// longHold is what it took to hold many locks for long.
type longHold struct {
	Store      string        `json:"store"`
	Locks      int           `json:"locks"`
	TTL        time.Duration `json:"ttl_ns"`
	Held       time.Duration `json:"held_ns"`
	Lost       int           `json:"lost"`
	Cause      string        `json:"cause,omitempty"` // of the first loss
	LeastLeft  float64       `json:"least_left"`      // of the TTL, when a renewal was confirmed
	TakePerS   float64       `json:"take_per_s"`
	FreePerS   float64       `json:"free_per_s"`
	Requests   float64       `json:"requests_per_s"`
	Bytes      float64       `json:"bytes_per_s"` // both ways
	ClientCPU  float64       `json:"client_cpu"`  // of one processor
	ServerCPU  float64       `json:"server_cpu"`
	Memory     float64       `json:"bytes_per_lock"`
	Goroutines float64       `json:"goroutines"` // more than before the locks
	Server     float64       `json:"server_bytes_per_lock"`
	Failed     string        `json:"failed,omitempty"`
}

// turns has one store at a time take or free its locks, and all hold theirs when the last has taken them.
type turns struct {
	mu    sync.Mutex
	taken sync.WaitGroup
}

func (t *turns) alone(f func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return f()
}

// holdLong takes the locks, holds them, and frees them, in a process of its own. The
// requests are counted here, so that it costs the client nothing.
func (r *run) holdLong(ctx context.Context, st store, l *longHold, together *turns) error {
	taken := sync.OnceFunc(together.taken.Done)
	defer taken()
	server, err := servers.StartDurable(ctx, st.kind)
	if err != nil {
		return err
	}
	defer server.Close()
	tap, err := measure.NewTap(server.Addr(), openurl.Scheme(server.URL()))
	if err != nil {
		return err
	}
	defer tap.Close()
	empty := resident(server.PIDs())
	var c *helper
	var took struct{ Took time.Duration }
	err = together.alone(func() (err error) {
		fmt.Fprintf(r.log, "%s %s: taking %d locks\n", r.clock(), st.id, l.Locks)
		if c, err = startHelper(ctx, task{Role: "hold", URL: at(server.LockURL(), tap.Addr()), Locks: l.Locks, TTL: l.TTL}); err != nil {
			return err
		}
		return c.read(&took)
	})
	if c != nil {
		defer c.end()
	}
	if err != nil {
		return err
	}
	l.TakePerS = float64(l.Locks) / took.Took.Seconds()
	taken()
	together.taken.Wait()
	fmt.Fprintf(r.log, "%s %s: holding them for %v\n", r.clock(), st.id, r.settings.scale.hold)
	if !sleepFor(ctx, l.TTL) { // the first renewal of each may cost more
		return ctx.Err()
	}
	if st.kind != servers.Postgres { // its rows are in memory that all its processes share
		l.Server = (resident(server.PIDs()) - empty) / float64(l.Locks)
	}
	began, requests, bytes := time.Now(), tap.Requests(), tap.Bytes()
	client, _ := measure.CPUTime([]int{c.pid()})
	served, _ := measure.ServerTime(server.PIDs())
	sleepFor(ctx, r.settings.scale.hold)
	l.Held = time.Since(began)
	passed := l.Held.Seconds()
	l.Requests, l.Bytes = float64(tap.Requests()-requests)/passed, float64(tap.Bytes()-bytes)/passed
	if now, ok := measure.CPUTime([]int{c.pid()}); ok {
		l.ClientCPU = (now - client).Seconds() / passed
	}
	if now, ok := measure.ServerTime(server.PIDs()); ok {
		l.ServerCPU = (now - served).Seconds() / passed
	}
	var end heldEnd
	if err := together.alone(func() error { c.tell("free"); return c.read(&end) }); err != nil {
		return err
	}
	l.Lost, l.Cause, l.LeastLeft, l.Memory, l.Goroutines = end.Lost, end.Cause, end.LeastLeft, end.Memory, end.Goroutines
	l.FreePerS = float64(l.Locks) / end.Freed.Seconds()
	fmt.Fprintf(r.log, "%s %s: %+v\n", r.clock(), st.id, *l)
	return ctx.Err()
}

// at returns a URL with another host.
func at(rawURL, addr string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return rawURL
	}
	u.Host = addr
	return u.String()
}

func sleepFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// resident returns the bytes of memory that processes have; 0 if that is not known.
func resident(pids []int) (bytes float64) {
	for _, pid := range pids {
		var size, pages float64
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err == nil {
			_, err = fmt.Sscan(string(text), &size, &pages)
		}
		if err != nil {
			return 0
		}
		bytes += pages * float64(os.Getpagesize())
	}
	return bytes
}

// helper is a process of this program that does a task, and talks in lines of JSON.
type helper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// helperFlag makes the program do a task: see help.
const helperFlag = "-helper"

func startHelper(ctx context.Context, t task) (*helper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &helper{cmd: exec.CommandContext(ctx, self, helperFlag)}
	c.cmd.WaitDelay = time.Second
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(bufio.NewReader(out))
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	return c, json.NewEncoder(c.in).Encode(t)
}

func (c *helper) pid() int { return c.cmd.Process.Pid }

func (c *helper) tell(word string) { _, _ = fmt.Fprintln(c.in, word) }

// read waits for what the helper says next.
func (c *helper) read(v any) error {
	if err := c.out.Decode(v); err != nil {
		return fmt.Errorf("a helper has ended early: %w", err)
	}
	return nil
}

// end has the helper end, and waits for that.
func (c *helper) end() {
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, err)
	}
}
