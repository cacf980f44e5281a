package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/distlock-go/distlock/bench/bucket"
	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/bench/result"
	"github.com/distlock-go/distlock/bench/work"
	"github.com/distlock-go/distlock/internal/servers"
)

const (
	// profileTime is how long a profile is taken, for samples enough to tell a few
	// per cent from each other, at up to a hundred a second and processor.
	profileTime = 3 * time.Second

	// heapSites is how many allocation sites are shown.
	heapSites = 5
)

// profile does the row once more where profiles are wanted: of ours, and of the peer
// that was the best of the row, where the time goes; of ours, if a held lock needs
// more than it should, where the memory goes. What fails here is told, and is no
// failure of the row: that was measured.
func (r *run) profile(ctx context.Context, f *fleet, backend servers.Kind, row work.Row, measured *result.Row) {
	var who, others []string
	for _, c := range r.contenders(row, backend) {
		switch c.Role {
		case peers.Ours:
			who = append(who, c.Name)
		case peers.Peer:
			others = append(others, c.Name)
		}
	}
	heap := len(who) > 0 && measured.HeapMissed()
	if !row.Profiled && !heap || r.quick && r.profiles == "" {
		return
	}
	if best := measured.Best(others); row.Profiled && best != "" {
		who = append(who, best)
	}
	for _, c := range peers.On(backend) {
		for _, name := range who {
			if name != c.Name || ctx.Err() != nil {
				continue
			}
			fmt.Fprintf(r.log, "%s %s %s, profile of %s\n", r.clock(), backend, row.ID, name)
			if err := r.profileOf(ctx, f, c, row, measured); err != nil && ctx.Err() == nil {
				fmt.Fprintf(r.log, "no profile of %s: %v\n", name, err)
			}
		}
	}
}

func (r *run) profileOf(ctx context.Context, f *fleet, c peers.Contender, row work.Row, measured *result.Row) error {
	dir := r.profiles
	if dir == "" {
		temp, err := os.MkdirTemp("", "distlock-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp)
		dir = temp
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%s-%s.pprof", c.Backend, row.ID, strings.NewReplacer("/", "-", " ", "-", ",", "").Replace(c.Name)))
	figures, err := r.job(ctx, f, c, row, func(j *work.Job) {
		if !row.Profiled {
			j.HeapProfile, j.Duration = path, 0
			return
		}
		j.CPUProfile, j.Duration = path, max(j.Duration, profileTime)
	})
	if err != nil {
		return err
	}
	return read(path, func(file io.Reader) (err error) {
		if !row.Profiled {
			measured.Heap, err = bucket.Heap(file, figures[result.Count], heapSites)
			return err
		}
		p, err := bucket.CPU(file)
		if err != nil || p.Samples == 0 {
			return err // nothing to show
		}
		if measured.Profiles == nil {
			measured.Profiles = make(map[string]*result.Profile)
		}
		measured.Profiles[c.Name] = p
		return nil
	})
}

// read has f read a file.
func read(path string, f func(io.Reader) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return f(file)
}
