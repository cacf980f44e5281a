// Package work has the workloads. Each runs in a process of its own, a child of
// the program, so that memory, goroutines and processor time are of the contender
// alone, and one that hangs can be ended.
package work

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/bench/result"
	"github.com/distlock-go/distlock/internal/servers"
)

// Job is what a child process is to do. It is sent to it as one line of JSON.
type Job struct {
	Backend   servers.Kind
	Contender string
	Row       string
	Prefix    string // of all names, so that jobs never meet
	URLs      []string
	Metered   []string // the same by proxies that count
	TTL       time.Duration
	Duration  time.Duration // to measure for
	PIDs      []int         // of the servers' processes; none if they are not known

	// Files for a profile of the measured time. With either, what else is measured
	// is not to be used: a profile costs time itself, and hand-offs are more than
	// otherwise, or there would be nothing to see.
	CPUProfile, HeapProfile string
}

// Figures are what a job has measured.
type Figures map[result.Figure]float64

// message is what the child says, one line of JSON each: that it wants to know how
// many requests the proxies have seen, upon which it gets a number, or the outcome.
type message struct {
	Requests bool    `json:",omitempty"`
	Figures  Figures `json:",omitempty"`
	Error    string  `json:",omitempty"`
	Done     bool    `json:",omitempty"`
}

// closeBound is how long the clients of a job may take to close, after the outcome
// has been told: the store should be quiet before the next job begins.
const closeBound = 5 * time.Second

// session is a job being done.
type session struct {
	Job
	contender peers.Contender
	out       *json.Encoder
	answers   chan int64

	mu      sync.Mutex
	clients []peers.Client
}

// Child does the one job that comes on in, and says so on out. It ends the process
// when in ends: then the parent is gone.
func Child(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	s := &session{out: json.NewEncoder(out), answers: make(chan int64)}
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &s.Job); err != nil {
		return err
	}
	go func() {
		for {
			var n int64
			if _, err := fmt.Fscanln(lines, &n); err != nil {
				os.Exit(2)
			}
			s.answers <- n
		}
	}()
	figures, err := s.do()
	m := message{Figures: figures, Done: true}
	if err != nil {
		m.Error = err.Error()
	}
	err = s.out.Encode(m)
	s.close()
	return err
}

func (s *session) do() (Figures, error) {
	row, ok := Find(s.Row)
	if !ok {
		return nil, fmt.Errorf("no row %q", s.Row)
	}
	for _, c := range peers.On(s.Backend) {
		if c.Name == s.Contender {
			s.contender = c
		}
	}
	if s.contender.Open == nil {
		return nil, fmt.Errorf("no contender %q on %s", s.Contender, s.Backend)
	}
	if s.HeapProfile != "" {
		runtime.MemProfileRate = fineHeap
	}
	ctx, cancel := context.WithTimeout(context.Background(), row.bound(s.Duration))
	defer cancel()
	figures, err := row.run(ctx, s)
	return figures, cmp.Or(err, ctx.Err())
}

// open returns a new client, which is closed when the job is done.
func (s *session) open(ctx context.Context, renew bool) (peers.Client, error) {
	return s.openAt(ctx, s.URLs, renew)
}

func (s *session) openAt(ctx context.Context, urls []string, renew bool) (peers.Client, error) {
	c, err := s.contender.Open(ctx, peers.Target{URLs: urls, TTL: s.TTL, Renew: renew})
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c, nil
}

// several returns n new clients.
func (s *session) several(ctx context.Context, n int) ([]peers.Client, error) {
	clients := make([]peers.Client, n)
	err := each(n, func(i int) error {
		var err error
		clients[i], err = s.open(ctx, false)
		return err
	})
	return clients, err
}

// requests asks the parent how many requests have come by the proxies. What was
// sent a moment ago may not have been counted yet, hence the pause.
func (s *session) requests() (int64, error) {
	time.Sleep(50 * time.Millisecond)
	if err := s.out.Encode(message{Requests: true}); err != nil {
		return 0, err
	}
	return <-s.answers, nil
}

func (s *session) close() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = each(len(s.clients), func(i int) error { return s.clients[i].Close() })
	}()
	select {
	case <-done:
	case <-time.After(closeBound):
	}
}

// each runs f for 0 to n-1 at the same time and returns what went wrong first.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// errStarved is what a workload returns that has nothing to show.
var errStarved = errors.New("nothing was measured in the time")
