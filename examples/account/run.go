package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/distlock-go/distlock/backends"
)

const (
	opening = 1000 // balance
	amount  = 100  // of a withdrawal
)

// workers withdraw once each, and all together what there is; fewer of them in tests.
var workers = opening / amount

// mode is a way to run the ten withdrawals.
type mode struct {
	name  string
	title string
	play  func(*run, context.Context) error
}

var modes = []mode{
	{"none", "without a lock", (*run).together},
	{"version", "without a lock, and a write is refused if another came in between", (*run).together},
	{"try", "with TryLock, and a worker that finds the lock held gives up", (*run).together},
	{"retry", "with TryLock every 100 ms until it succeeds", (*run).together},
	{"lock", "with Lock, which waits", (*run).together},
	{"outlast", "with Lock, and worker 1 works for twice as long as its lease", (*run).overtaken},
	{"fenced", "with Lock, and worker 1 is stopped before it writes, until its lease has ended and the others are done", (*run).stalled},
}

// settings are what a run needs to know.
type settings struct {
	url string
	ttl backends.Duration
}

// run is one run of ten withdrawals, each of them in a process of its own.
type run struct {
	mode    mode
	account *account
	crew    *crew
}

// playMode opens an account, has everybody withdraw, and returns what happened.
func playMode(ctx context.Context, m mode, s settings) (*run, error) {
	r := &run{mode: m, account: &account{balance: opening}, crew: newCrew()}
	url, stop, err := r.account.open()
	if err != nil {
		return nil, err
	}
	defer stop()
	defer r.crew.dismiss()
	base := job{URL: s.url, Account: remote(url), TTL: s.ttl}
	base.Version, base.Try, base.Retry = m.name == "version", m.name == "try", m.name == "retry"
	if m.name != "none" && m.name != "version" {
		// Fresh, so that runs at the same time do not wait for each other.
		base.Name = "examples/account/" + rand.Text()
	}
	for id := 1; id <= workers; id++ {
		j := base
		j.Worker = id
		j.Outlast = m.name == "outlast" && id == 1
		j.Stall = m.name == "fenced" && id == 1
		if err := r.crew.hire(ctx, j); err != nil {
			return nil, err
		}
	}
	if err := r.crew.await(ctx, ready, workers); err != nil {
		return nil, err
	}
	return r, m.play(r, ctx)
}

// together lets all withdraw at the same time.
func (r *run) together(ctx context.Context) error {
	if err := r.crew.send(everybody()...); err != nil {
		return err
	}
	return r.crew.await(ctx, done, workers)
}

// overtaken lets worker 1 take the lock first, so that all the others wait while it
// works for longer than its lease.
func (r *run) overtaken(ctx context.Context) error {
	if err := r.crew.send(1); err != nil {
		return err
	}
	if err := r.crew.await(ctx, reads, 1); err != nil {
		return err
	}
	if err := r.crew.send(everybody()[1:]...); err != nil {
		return err
	}
	return r.crew.await(ctx, done, workers)
}

// stalled stops worker 1 between its last look at the lock and its write, and lets
// it go on when all the others have withdrawn.
func (r *run) stalled(ctx context.Context) error {
	if err := r.crew.send(1); err != nil {
		return err
	}
	if err := r.crew.await(ctx, checked, 1); err != nil {
		return err
	}
	// It cannot write before it is stopped: it waits for another "go".
	first := r.crew.members[1].process.Process
	if err := stall(first); err != nil {
		return fmt.Errorf("stopping worker 1: %w", err)
	}
	if err := r.crew.send(everybody()[1:]...); err != nil {
		return err
	}
	if err := r.crew.await(ctx, done, workers-1); err != nil {
		return err
	}
	if err := errors.Join(r.crew.send(1), resume(first)); err != nil {
		return err
	}
	return r.crew.await(ctx, done, workers)
}

func everybody() []int {
	ids := make([]int, workers)
	for i := range ids {
		ids[i] = i + 1
	}
	return ids
}

// verdict returns an error if the run did not show what it is there to show.
func (r *run) verdict() error {
	balance, refused := r.account.state()
	left := opening - amount*(workers-r.crew.count(gaveUp))
	switch {
	case r.mode.name == "none":
		return nil // with luck, it goes well
	case balance != left:
		return fmt.Errorf("%s: the balance is %d, want %d", r.mode.name, balance, left)
	case r.mode.name == "fenced" && refused == 0:
		return errors.New("fenced: the account refused no write")
	}
	return nil
}
