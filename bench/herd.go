package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/compare/measure"
	"github.com/distlock-go/distlock/internal/servers"
)

// herd is what came of many waiters in many processes: each process waits once for
// each name, the processes queue one after the other, and then all names are freed.
type herd struct {
	Store     string  `json:"store"`
	Processes int     `json:"processes"`
	Names     int     `json:"names"`
	Served    int     `json:"served"`
	Failures  int     `json:"failures"`
	Failure   string  `json:"failure,omitempty"` // one of them
	Overlaps  int     `json:"overlaps"`          // turns that began before the turn before had ended
	Disorder  float64 `json:"out_of_order"`      // share of the turns that came before that of an earlier process
	Queued    float64 `json:"queue_s"`           // until all waited
	Drain     float64 `json:"drain_s"`           // from the first release until all had a turn
	ClientCPU float64 `json:"client_cpu"`        // of one processor, all processes together, while all waited
	ServerCPU float64 `json:"server_cpu"`
	Failed    string  `json:"failed,omitempty"`

	waiting int // processes so far
}

const (
	herdProcesses = 100
	herdNames     = 100
	herdNamesFew  = 10 // of the stores in fewer
	herdMaxConns  = "max-connections=2000"

	herdWatched = 10 * time.Second // how long the waiting itself is measured
	herdLimit   = 5 * time.Minute
)

func newHerd(st store) *herd {
	h := &herd{Store: st.title, Processes: herdProcesses, Names: herdNames}
	if fewer[st.title] != "" {
		h.Names = herdNamesFew
	}
	return h
}

// fewer says on which stores there are fewer waiters, by their titles, and why. Polling waiters ask ten times a second: 9,000
// of them are more than MySQL answers.
var fewer = map[string]string{
	"MySQL":    "one that does not poll is a connection, and a thread of the server",
	"Postgres": "64 of the 100 have a place on a name's list; the others poll, and come when they find the name free",
}

// gather has the herd served, or says how far that came within the limit.
func (r *run) gather(ctx context.Context, st store, h *herd) error {
	bounded, cancel := context.WithTimeout(ctx, herdLimit)
	defer cancel()
	err := r.drive(bounded, st, h)
	if bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("not done after %v: %d of %d processes waited", herdLimit, h.waiting, h.Processes)
	}
	return err
}

// drive starts the processes, has them wait, and frees the names.
func (r *run) drive(ctx context.Context, st store, h *herd) error {
	fmt.Fprintf(r.log, "%s %s: %d waiters in %d processes\n", r.clock(), st.id, h.Processes*h.Names, h.Processes)
	server, url, err := herdServer(ctx, st)
	if err != nil {
		return err
	}
	defer server.Close()
	locker, err := backends.Config{URL: url, TTL: backends.Duration(scaleTTL)}.Open(ctx)
	if err != nil {
		return err
	}
	defer locker.Close()
	holds := make([]distlock.Lock, h.Names)
	for i := range holds {
		if holds[i], err = locker.Lock(ctx, name(i)); err != nil {
			return err
		}
	}
	var all []*helper
	defer func() {
		for _, c := range all {
			c.end()
		}
	}()
	began := time.Now()
	var pids []int
	for range h.Processes { // one after the other, so that their order is known
		c, err := startHelper(ctx, task{Role: "wait", URL: url, Locks: h.Names, TTL: scaleTTL})
		if c != nil {
			all = append(all, c)
			pids = append(pids, c.pid())
		}
		if err == nil {
			var word string
			err = c.read(&word)
		}
		if err != nil {
			return err
		}
		h.waiting++
	}
	h.Queued = time.Since(began).Seconds()
	h.watch(ctx, pids, server.PIDs())
	freed := time.Now()
	for _, l := range holds {
		if err := l.Unlock(ctx); err != nil {
			return err
		}
	}
	turns := make([][]turn, len(all)) // by process and name
	for i, c := range all {
		if err := c.read(&turns[i]); err != nil {
			return err
		}
	}
	h.judge(turns, freed.UnixNano())
	fmt.Fprintf(r.log, "%s %s: %d served, %d failed, %.1f s\n", r.clock(), st.id, h.Served, h.Failures, h.Drain)
	return ctx.Err()
}

// herdConns keeps a hundred processes within what a server of databases allows.
var herdConns = map[servers.Kind]string{servers.MySQL: "wait_conns=10&max_conns=2", servers.Postgres: "max_conns=2"}

func herdServer(ctx context.Context, st store) (*servers.Server, string, error) {
	conns := herdConns[st.kind]
	if conns == "" {
		s, err := servers.StartDurable(ctx, st.kind)
		if err != nil {
			return nil, "", err
		}
		return s, s.LockURL(), nil
	}
	s, err := servers.StartConfigured(ctx, st.kind, herdMaxConns)
	if err != nil {
		return nil, "", err
	}
	return s, s.LockURL() + "&" + conns, nil
}

// watch measures what the waiting costs.
func (h *herd) watch(ctx context.Context, clients, server []int) {
	before, _ := measure.CPUTime(clients)
	served, _ := measure.ServerTime(server)
	sleepFor(ctx, herdWatched)
	after, _ := measure.CPUTime(clients)
	now, _ := measure.ServerTime(server)
	h.ClientCPU = (after - before).Seconds() / herdWatched.Seconds()
	h.ServerCPU = (now - served).Seconds() / herdWatched.Seconds()
}

// judge looks at the turns of each name in the order of their tokens.
func (h *herd) judge(turns [][]turn, freed int64) {
	type place struct {
		turn
		process int
	}
	early, last := 0, freed
	for name := range h.Names {
		var order []place
		for process := range turns {
			t := turns[process][name]
			if t.Failed != "" {
				h.Failures++
				h.Failure = t.Failed
			}
			if t.Token != 0 {
				order = append(order, place{t, process})
				last = max(last, t.From)
			}
		}
		slices.SortFunc(order, func(a, b place) int { return cmp.Compare(a.Token, b.Token) })
		lowest := h.Processes
		for i := len(order) - 1; i >= 0; i-- {
			if order[i].process > lowest {
				early++
			}
			lowest = min(lowest, order[i].process)
			if i > 0 && order[i].From < order[i-1].Till {
				h.Overlaps++
			}
		}
		h.Served += len(order)
	}
	h.Disorder = float64(early) / float64(max(h.Served, 1))
	h.Drain = time.Duration(last - freed).Seconds()
}
