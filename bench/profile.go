package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock/bench/bucket"
	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/bench/result"
	"github.com/distlock-go/distlock/bench/work"
)

const (
	// profileTime is how long a profile is taken. If that gives fewer samples than
	// enough, it is taken again, for up to profileMore times as long.
	profileTime = 3 * time.Second
	enough      = 100
	profileMore = 2

	// heapSites is how many allocation sites are shown.
	heapSites = 5
)

// profile does the row once more where profiles are wanted: of ours, and of the peer
// that it is to be looked at beside, where the time goes; of ours, if a held lock needs
// more than it should, where the memory goes. What fails here is told, and is no
// failure of the row: that was measured.
func (r *run) profile(ctx context.Context, f *fleet, b *result.Backend, row work.Row, measured *result.Row) {
	if r.quick && r.profiles == "" {
		return
	}
	var ours, others []string
	backend := f.nodes[0].Kind()
	for _, c := range r.contenders(row, backend) {
		switch c.Role {
		case peers.Ours:
			ours = append(ours, c.Name)
		case peers.Peer:
			others = append(others, c.Name)
		}
	}
	var take func(ctx context.Context, f *fleet, c peers.Contender, row work.Row, measured *result.Row) error
	switch {
	case row.Profiled:
		take = r.cpuProfile
		ours = append(ours, b.Rival(backend, measured, others))
	case measured.HeapMissed():
		take = r.heapProfile
	default:
		return
	}
	for _, c := range peers.On(backend) {
		if !slices.Contains(ours, c.Name) || ctx.Err() != nil {
			continue
		}
		fmt.Fprintf(r.log, "%s %s %s, profile of %s\n", r.clock(), backend, row.ID, c.Name)
		if err := take(ctx, f, c, row, measured); err != nil && ctx.Err() == nil {
			fmt.Fprintf(r.log, "no profile of %s: %v\n", c.Name, err)
		}
	}
}

// cpuProfile sees where a contender spends its time.
func (r *run) cpuProfile(ctx context.Context, f *fleet, c peers.Contender, row work.Row, measured *result.Row) error {
	sum := &result.Profile{Spent: make(map[result.Bucket]int64)}
	take := func(d time.Duration) error {
		return r.inFile(c, row, func(path string) error {
			_, err := r.job(ctx, f, c, row, func(j *work.Job) { j.CPUProfile, j.Duration = path, d })
			return err
		}, func(file io.Reader) error {
			p, err := bucket.CPU(file)
			if err == nil {
				sum.Add(p)
			}
			return err
		})
	}
	d := max(row.Measure(r.duration, r.quick), profileTime)
	err := take(d)
	if err == nil && sum.Samples < enough {
		more := enough/float64(max(sum.Samples, 1)) - 1
		err = take(time.Duration(min(max(more, 0.2), profileMore) * float64(d)))
	}
	if err != nil {
		return err
	}
	if sum.Samples == 0 {
		return fmt.Errorf("it has no samples")
	}
	if measured.Profiles == nil {
		measured.Profiles = make(map[string]*result.Profile)
	}
	measured.Profiles[c.Name] = sum
	return nil
}

// heapProfile sees what the memory of held locks is.
func (r *run) heapProfile(ctx context.Context, f *fleet, c peers.Contender, row work.Row, measured *result.Row) error {
	var figures work.Figures
	return r.inFile(c, row, func(path string) (err error) {
		figures, err = r.job(ctx, f, c, row, func(j *work.Job) { j.HeapProfile, j.Duration = path, 0 })
		return err
	}, func(file io.Reader) (err error) {
		measured.Heap, err = bucket.Heap(file, figures[result.Count], heapSites)
		return err
	})
}

// inFile has write make the file of a profile, in the folder that was asked for or in
// one that goes away, and then read look at it.
func (r *run) inFile(c peers.Contender, row work.Row, write func(path string) error, read func(io.Reader) error) error {
	dir := r.profiles
	if dir == "" {
		temp, err := os.MkdirTemp("", "distlock-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp)
		dir = temp
	}
	name := strings.NewReplacer("/", "-", " ", "-", ",", "").Replace(c.Name)
	path := filepath.Join(dir, fmt.Sprintf("%s-%s-%s.pprof", c.Backend, row.ID, name))
	if err := write(path); err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return read(file)
}
