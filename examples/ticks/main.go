// Command ticks has three nodes close unpaid orders at every tick, as schedulers do that
// run on each machine of a service. Each node is a process of its own.
//
//	go run ./examples/ticks --url redis://localhost:6379
//
// It does so twice. Under a plain lock the orders are closed up to three times a tick:
// the lock is free again when the second node comes. With OncePer, one node does it.
// Each time the node that ran last is killed in the middle, and the others go on.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/driver"
)

const (
	nodes = 3
	ticks = 4 // before the kill, and after it
)

// settings are what a run needs to know.
type settings struct {
	url   string
	tick  time.Duration
	ticks int
}

func main() {
	if os.Getenv(nodeEnv) != "" {
		work(os.Getenv(nodeEnv))
		return
	}
	// A node must not be left behind, so ^C ends the run in order.
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := demonstrate(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ticks:", err)
		os.Exit(1)
	}
}

// demonstrate runs both modes.
func demonstrate(ctx context.Context, args []string, w io.Writer) error {
	flags := flag.NewFlagSet("ticks", flag.ContinueOnError)
	flags.SetOutput(w)
	// No default: --help would show it, and the password in it.
	url := flags.String("url", "", "`URL` of the backend, redis://, mysql://, postgres://, zk:// or etcd://; without it, that in $DISTLOCK_URL")
	tick := flags.Duration("tick", 1500*time.Millisecond, "time from tick to tick, at least 1.5s")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *url == "" {
		c, err := backends.FromEnv()
		if err != nil {
			return fmt.Errorf("no --url: %w", err)
		}
		*url = c.URL
	}
	if *tick < 1500*time.Millisecond {
		return errors.New("the ticks are too close: a lease lasts for a second at least on some stores")
	}
	if err := checkBackend(ctx, *url); err != nil {
		return err
	}
	for _, mode := range []string{plain, once} {
		fmt.Fprintf(w, "Three nodes, a tick every %v, %s:\n", *tick, mode)
		r, err := play(ctx, mode, settings{*url, *tick, ticks})
		if err != nil {
			return err
		}
		r.print(w)
		if err := r.verdict(); err != nil {
			return err
		}
	}
	return nil
}

// checkBackend fails, before three processes do, if the backend cannot be used.
func checkBackend(ctx context.Context, url string) error {
	locker, err := backends.Open(ctx, url)
	if err != nil {
		return err
	}
	defer locker.Close()
	if c, ok := locker.(interface{ Capabilities() driver.Capabilities }); ok && c.Capabilities().Backend == "memory" {
		return errors.New("mem:// is the memory of one process, and this needs several: " +
			"pass the --url of a server (redis://, mysql://, postgres://, zk:// or etcd://)")
	}
	return nil
}

// run is what the nodes have done in one mode.
type run struct {
	mode   string
	tick   time.Duration
	done   []closing
	killed int       // node
	at     time.Time // when it was
}

// play starts the nodes. After a few ticks it kills the one that ran last, and waits for
// as many ticks more, run by the others.
func play(ctx context.Context, mode string, s settings) (*run, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel() // kills the nodes
	r := &run{mode: mode, tick: s.tick}
	events := make(chan closing)
	processes := make(map[int]*exec.Cmd)
	name := "examples/ticks/" + rand.Text() // fresh, so that runs at the same time do not meet
	hold, letGo, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer hold.Close()
	defer letGo.Close()
	for id := range nodes {
		process, err := start(ctx, node{ID: id + 1, URL: s.url, Name: name, Mode: mode, Tick: s.tick}, hold, events)
		if err != nil {
			return nil, err
		}
		processes[id+1] = process
	}
	ready, before := 0, 0
	for {
		select {
		case c := <-events:
			if c.Err != "" {
				return nil, fmt.Errorf("node %d: %s", c.Node, c.Err)
			}
			if c.Ready {
				if ready++; ready == nodes {
					letGo.Close()
				}
				continue
			}
			r.done = append(r.done, c)
		case <-ctx.Done():
			return nil, fmt.Errorf("after %d runs: %w", len(r.done), ctx.Err())
		}
		switch seen := len(r.byTick()); {
		case r.killed == 0 && seen > s.ticks:
			last := r.done[len(r.done)-1]
			r.killed, r.at, before = last.Node, time.Now(), seen
			if err := processes[last.Node].Process.Kill(); err != nil {
				return nil, err
			}
		case r.killed != 0 && seen >= before+s.ticks:
			return r, nil
		}
	}
}

// start starts a process for n, and has what it tells sent to events. It runs nothing before the end of hold, which is all
// nodes' at once: the first ticks would be those of one node else.
func start(ctx context.Context, n node, hold *os.File, events chan<- closing) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	job, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	process := exec.CommandContext(ctx, self)
	process.Env = append(os.Environ(), nodeEnv+"="+string(job))
	process.Stdin, process.Stderr = hold, os.Stderr
	out, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var c closing
			if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
				c = closing{Node: n.ID, Err: err.Error()}
			}
			select {
			case events <- c:
			case <-ctx.Done():
			}
		}
		_ = process.Wait() // it was killed, or has told why it ended
	}()
	return process, nil
}

// byTick returns the nodes that ran in each tick, in the order of the ticks.
func (r *run) byTick() [][]closing {
	sorted := slices.SortedFunc(slices.Values(r.done), func(a, b closing) int { return a.At.Compare(b.At) })
	var all [][]closing
	for i, c := range sorted {
		if i > 0 && tickOf(c.At, r.tick).Equal(tickOf(sorted[i-1].At, r.tick)) {
			all[len(all)-1] = append(all[len(all)-1], c)
		} else {
			all = append(all, []closing{c})
		}
	}
	return all
}

func tickOf(at time.Time, tick time.Duration) time.Time { return at.Truncate(tick) }

func (r *run) print(w io.Writer) {
	var first time.Time
	for _, tick := range r.byTick() {
		if first.IsZero() {
			first = tickOf(tick[0].At, r.tick)
		}
		var who []string
		for _, c := range tick {
			who = append(who, fmt.Sprint("node ", c.Node))
		}
		note := ""
		if killed := tickOf(r.at, r.tick); killed.Equal(tickOf(tick[0].At, r.tick)) {
			note = fmt.Sprintf("   then node %d is killed", r.killed)
		}
		fmt.Fprintf(w, "%7.1fs  closed by %s%s\n", tickOf(tick[0].At, r.tick).Sub(first).Seconds(), strings.Join(who, ", "), note)
	}
	fmt.Fprintf(w, "The orders were closed %d times in %d ticks.\n", len(r.done), len(r.byTick()))
}

// verdict returns an error if the run did not show what it is there to show.
func (r *run) verdict() error {
	for _, tick := range r.byTick() {
		if r.mode == once && len(tick) > 1 {
			return fmt.Errorf("the orders were closed %d times in one tick", len(tick))
		}
	}
	return nil
}
