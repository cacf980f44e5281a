package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/bench/result"
	"github.com/distlock-go/distlock/bench/work"
	"github.com/distlock-go/distlock/internal/servers"
)

// run is one run of the benchmarks.
type run struct {
	settings
	results *result.Results
	log     io.Writer
	began   time.Time
}

// everything measures what the settings ask for, row by row, and saves the results
// after each, so that an interrupted run leaves what it has.
func (r *run) everything(ctx context.Context) error {
	if r.profiles != "" {
		if err := os.MkdirAll(r.profiles, 0o755); err != nil {
			return err
		}
	}
	var errs []error
	for _, backend := range r.backends {
		if ctx.Err() != nil {
			break
		}
		if err := r.backend(ctx, backend); err != nil && ctx.Err() == nil {
			fmt.Fprintf(r.log, "%s: %v\n", backend, err)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *run) backend(ctx context.Context, backend servers.Kind) error {
	rows := r.rowsOn(backend)
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintf(r.log, "%s starting %s\n", r.clock(), backend)
	f, err := launch(ctx, backend, peers.On(backend))
	if err != nil {
		return err
	}
	defer func() {
		if err := f.close(); err != nil {
			fmt.Fprintln(r.log, err)
		}
	}()
	b := r.results.Backends[backend]
	if b == nil {
		b = new(result.Backend)
		r.results.Backends[backend] = b
	}
	b.Server = f.describe()
	for _, row := range rows {
		measured := r.row(ctx, f, backend, row)
		if ctx.Err() != nil && len(measured.Rounds) == 0 {
			return ctx.Err()
		}
		b.Put(measured)
		r.profile(ctx, f, b, row, measured)
		slices.SortFunc(b.Rows, func(x, y *result.Row) int { return cmp.Compare(place(x.ID), place(y.ID)) })
		if err := r.results.Save(r.out); err != nil {
			return err
		}
		fmt.Fprint(r.log, result.Summary(backend, measured))
	}
	return nil
}

// rowsOn returns the rows that are asked for and that somebody on the backend takes.
func (r *run) rowsOn(backend servers.Kind) []work.Row {
	var rows []work.Row
	for _, row := range work.Rows {
		if r.wants(row) && len(r.contenders(row, backend)) > 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

// place is where a row stands among the others, however the results came together.
func place(id string) int {
	return slices.IndexFunc(work.Rows, func(r work.Row) bool { return r.ID == id })
}

func (r *run) row(ctx context.Context, f *fleet, backend servers.Kind, row work.Row) *result.Row {
	measured := &result.Row{
		ID: row.ID, Title: row.Title, Taken: time.Now().UTC().Truncate(time.Second), Command: r.command, Commit: r.commit,
		Seconds: row.Measure(r.duration, r.quick).Seconds(), TTL: r.ttl(row).Seconds(), Load: load(),
		InTurn: row.Kind == work.Timed, Failed: make(map[string]string),
	}
	rounds := 1
	if measured.InTurn {
		rounds = r.rounds
	}
	for i := range rounds {
		fmt.Fprintf(r.log, "%s %s %s, round %d of %d\n", r.clock(), backend, row.ID, i+1, rounds)
		round := make(result.Round)
		var mu sync.Mutex
		one := func(c peers.Contender) {
			if ctx.Err() != nil {
				return
			}
			figures, err := r.job(ctx, f, c, row, nil)
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				measured.Failed[c.Name] = err.Error()
				return
			}
			round[c.Name] = figures
		}
		contenders := r.contenders(row, backend)
		// In another order each time: nobody always comes after the same one.
		mathrand.Shuffle(len(contenders), func(a, b int) { contenders[a], contenders[b] = contenders[b], contenders[a] })
		var together sync.WaitGroup
		for _, c := range contenders {
			if row.Kind == work.Counted {
				together.Go(func() { one(c) })
			} else {
				one(c)
			}
		}
		together.Wait()
		if ctx.Err() != nil {
			break // a round that is not whole says nothing
		}
		measured.Rounds = append(measured.Rounds, round)
	}
	return measured
}

// job does the row for a contender. change may be nil; it sets what is not the same
// for all jobs.
func (r *run) job(ctx context.Context, f *fleet, c peers.Contender, row work.Row, change func(*work.Job)) (work.Figures, error) {
	if c.Nodes > len(f.nodes) {
		return nil, fmt.Errorf("it needs %d servers, and a given URL is one", c.Nodes)
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails, by its documentation
	j := work.Job{
		Backend: c.Backend, Contender: c.Name, Row: row.ID, Prefix: "b" + hex.EncodeToString(random[:]) + "-",
		URLs: f.urls(c.Nodes), PIDs: f.pids(c.Nodes), TTL: r.ttl(row), Duration: row.Measure(r.duration, r.quick),
	}
	if change != nil {
		change(&j)
	}
	count := func() int64 { return 0 }
	if row.Metered {
		g, err := f.measured(c.Nodes)
		if err != nil {
			return nil, err
		}
		defer func() { _ = g.close() }()
		j.Metered, count = g.urls, g.requests
	}
	return work.Do(ctx, j, count)
}

func (r *run) ttl(row work.Row) time.Duration {
	if row.TTL > 0 {
		return row.TTL
	}
	return work.DefaultTTL
}

func (r *run) clock() string { return fmt.Sprintf("[%4.0fs]", time.Since(r.began).Seconds()) }
