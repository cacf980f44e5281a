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
	"slices"
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

// sideBySide is on how many stores "-scale" holds at a time. Holding is mostly waiting, but 500,000 locks on five stores and the
// counting of their requests need 1.6 processors and more: on two that share a core, those locks were lost.
const sideBySide = 3

// scale holds on a few stores at the same time. It takes and frees on one store after the other, and so it does with the waiters:
// stores that are all kept busy leave each other too little of the processors to renew. Postgres, of which each connection is a
// process, leaves the others least: it takes first and frees last.
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
	if r.settings.scale.locks > 0 { // else there is nothing to hold
		s.Long = r.holdLong(ctx)
	}
	looked()
	for _, st := range r.stores {
		if st.setUp != nil {
			continue // the same store again
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

// holdLong takes the locks on each store, holds them, and frees them.
func (r *run) holdLong(ctx context.Context) (figures []*longHold) {
	var all []*holder
	for _, st := range r.stores {
		if st.setUp != nil {
			continue // the same store again
		}
		h := &holder{store: st, figures: &longHold{Store: st.title, Locks: r.settings.scale.locks, TTL: scaleTTL}}
		figures = append(figures, h.figures)
		if st.kind == servers.Postgres {
			all = slices.Insert(all, 0, h)
		} else {
			all = append(all, h)
		}
	}
	for group := range slices.Chunk(all, sideBySide) {
		r.holdBeside(ctx, group)
	}
	return figures
}

// holdBeside does it on some stores. Their servers end with it, so that they cost the next ones nothing.
func (r *run) holdBeside(ctx context.Context, all []*holder) {
	for _, h := range all {
		defer h.close()
		fmt.Fprintf(r.log, "%s %s: taking %d locks\n", r.clock(), h.store.id, h.figures.Locks)
		h.try(func() error { return h.take(ctx) })
	}
	fmt.Fprintf(r.log, "%s holding them for %v\n", r.clock(), r.settings.scale.hold)
	sleepFor(ctx, scaleTTL) // the first renewal of each may cost more
	for _, h := range all {
		h.try(h.begin)
	}
	sleepFor(ctx, r.settings.scale.hold)
	for _, h := range all {
		h.try(h.count)
	}
	for _, h := range slices.Backward(all) {
		h.try(h.free)
		fmt.Fprintf(r.log, "%s %s: %+v\n", r.clock(), h.store.id, *h.figures)
	}
}

// holder holds the locks of one store, in a process of its own. The requests are counted here, so that it costs that nothing.
type holder struct {
	store   store
	figures *longHold
	server  *servers.Server
	tap     *measure.Tap
	client  *helper
	empty   float64 // bytes of the server before the locks

	began           time.Time // with what there was by then of
	requests, bytes int64
	clientCPU       time.Duration
	serverCPU       time.Duration
}

// try does nothing after a failure.
func (h *holder) try(step func() error) {
	if h.figures.Failed != "" {
		return
	}
	if err := step(); err != nil {
		h.figures.Failed = err.Error()
	}
}

func (h *holder) close() {
	if h.client != nil {
		h.client.end()
	}
	h.tap.Close()
	if h.server != nil {
		_ = h.server.Close()
	}
}

func (h *holder) take(ctx context.Context) (err error) {
	if h.server, err = servers.StartDurable(ctx, h.store.kind); err != nil {
		return err
	}
	if h.tap, err = measure.NewTap(h.server.Addr(), openurl.Scheme(h.server.URL())); err != nil {
		return err
	}
	h.empty = resident(h.server.PIDs())
	url := at(h.server.LockURL(), h.tap.Addr())
	if h.client, err = startHelper(ctx, task{Role: "hold", URL: url, Locks: h.figures.Locks, TTL: h.figures.TTL}); err != nil {
		return err
	}
	var took struct{ Took time.Duration }
	if err := h.client.read(&took); err != nil {
		return err
	}
	h.figures.TakePerS = float64(h.figures.Locks) / took.Took.Seconds()
	return nil
}

func (h *holder) begin() error {
	if h.store.kind != servers.Postgres { // its rows are in memory that all its processes share
		h.figures.Server = (resident(h.server.PIDs()) - h.empty) / float64(h.figures.Locks)
	}
	h.began, h.requests, h.bytes = time.Now(), h.tap.Requests(), h.tap.Bytes()
	h.clientCPU, _ = measure.CPUTime([]int{h.client.pid()})
	h.serverCPU, _ = measure.ServerTime(h.server.PIDs())
	return nil
}

func (h *holder) count() error {
	l := h.figures
	l.Held = time.Since(h.began)
	passed := l.Held.Seconds()
	l.Requests, l.Bytes = float64(h.tap.Requests()-h.requests)/passed, float64(h.tap.Bytes()-h.bytes)/passed
	if now, ok := measure.CPUTime([]int{h.client.pid()}); ok {
		l.ClientCPU = (now - h.clientCPU).Seconds() / passed
	}
	if now, ok := measure.ServerTime(h.server.PIDs()); ok {
		l.ServerCPU = (now - h.serverCPU).Seconds() / passed
	}
	return nil
}

func (h *holder) free() error {
	h.client.tell("free")
	var end heldEnd
	if err := h.client.read(&end); err != nil {
		return err
	}
	l := h.figures
	l.Lost, l.Cause, l.LeastLeft, l.Memory, l.Goroutines = end.Lost, end.Cause, end.LeastLeft, end.Memory, end.Goroutines
	l.FreePerS = float64(l.Locks) / end.Freed.Seconds()
	return nil
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
