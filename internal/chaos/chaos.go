// Package chaos breaks a store on purpose while clients lock on it. It judges from the
// record of all that they did whether the store's locks have kept the contract.
//
// A run is a script: the seed decides the next fault, its time and its length. It does not
// decide what the clients do: their goroutines run as they may. So a seed repeats the
// faults of a run, and probably what they found.
package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

// Subject is a store to break, and how to lock on it.
type Subject struct {
	Name   string
	Open   func(ctx context.Context, client int) (distlock.Locker, error)
	Faults []Fault

	// Exclusive says that the store keeps what it has granted, whatever the faults. Where
	// it does not, two holders at a time are counted, and only the tokens must tell
	// them apart.
	Exclusive bool

	// Lag is how long after its TTL a dead holder's name may stay taken, beside the
	// time that the store itself is down.
	Lag time.Duration

	// Granularity is that of the store's TTLs.
	Granularity time.Duration

	// Serves, if there is one, asks the store itself, without a lock. After a fault, the time to
	// recover counts from its answer. If that does not come, Revive does what an operator
	// would.
	Serves, Revive func(ctx context.Context) error
}

// Fault is one way to break the store, and its undoing.
type Fault struct {
	Name  string
	Break func(ctx context.Context) error
	Mend  func(ctx context.Context) error

	// Length is about how long it lasts, if that differs from that of the others.
	Length time.Duration
}

// Params say how much is broken, and how many clients lock meanwhile.
type Params struct {
	Seed    uint64
	Events  int           // faults, one after the other, and
	For     time.Duration // more of them until this has passed
	Clients int           // each like a process of its own, with two goroutines that lock
	Names   int           // that they fight for
	TTL     time.Duration // of all locks
	Gap     time.Duration // about the time between two faults
	Length  time.Duration // about how long a fault lasts: up to twice as long
	Log     func(text string)
}

// Result is what happened. A run without Findings has kept the contract.
type Result struct {
	Subject   string
	Exclusive bool
	Seed      uint64
	Events    map[string]int // by the name of the fault
	Grants    int
	Refusals  int           // held by another until the context ended, or at once
	Failures  int           // errors of the store, or calls that it did not answer
	Lost      int           // holders that were told so
	Overlaps  int           // grants while another still believed, on a store that does not promise Exclusive
	Stale     int           // writes that the fenced resource has refused
	Longest   time.Duration // from the end of a fault, or from when the store itself serves again, to the next grant
	Revived   int           // times that the store itself served nobody after a fault, until Revive
	Findings  []string
}

// recovery bounds how long after a fault nobody may get a lock, besides the TTL. It is for
// elections, for clients that find the new leader, and for a slow machine.
const recovery = 30 * time.Second

// Hung is how long after a fault a store may serve nobody, until it is revived.
const Hung = 20 * time.Second

// run is one run under way.
type run struct {
	Subject
	Params
	record   *oracle.Recorder
	resource *resource
	lockers  []distlock.Locker

	mu     sync.Mutex
	result Result
	latest time.Time // of the last grant
}

// Run opens the clients, breaks the store p.Events times, and returns what happened. An
// error is of the run itself: a client could not be opened while all was well, a fault
// could not be made or mended, or ctx has ended.
func Run(ctx context.Context, s Subject, p Params) (*Result, error) {
	r := &run{Subject: s, Params: p, resource: newResource(), latest: time.Now(), record: oracle.NewRecorder(oracle.History{
		Backend: s.Name, Seed: p.Seed, Granularity: s.Granularity, MinTTL: time.Millisecond, ExpiryLag: s.Lag,
	})}
	r.result = Result{Subject: s.Name, Exclusive: s.Exclusive, Seed: p.Seed, Events: make(map[string]int)}
	for i := range p.Clients {
		l, err := s.Open(ctx, i)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("chaos: %s: opening client %d: %w", s.Name, i, err), r.close())
		}
		r.lockers = append(r.lockers, l)
	}
	if err := r.load(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("chaos: %s: %w", s.Name, err), r.close())
	}
	if err := r.close(); err != nil {
		r.finding("after everything was mended, Close failed: %v", err)
	}
	r.leftovers(ctx)
	r.judge()
	return &r.result, ctx.Err()
}

// load lets the clients lock while the store is broken and mended.
func (r *run) load(ctx context.Context) error {
	stop, end := context.WithCancel(ctx)
	defer end()
	var workers sync.WaitGroup
	for i, l := range r.lockers {
		for j := range 2 {
			random := rand.New(rand.NewPCG(r.Seed, uint64(2*i+j+1)))
			workers.Go(func() { r.work(stop, fmt.Sprintf("client %d.%d", i, j), l, random) })
		}
	}
	err := r.script(ctx)
	end()
	workers.Wait()
	return err
}

// script breaks the store, one fault after the other. Everything is mended when it
// returns, as far as it can be.
func (r *run) script(ctx context.Context) error {
	random := rand.New(rand.NewPCG(r.Seed, 0))
	about := func(d time.Duration) time.Duration { return d/2 + time.Duration(random.Int64N(int64(d)+1)) }
	began := time.Now()
	for n := 0; n < r.Events || time.Since(began) < r.For; n++ {
		f := r.Faults[random.IntN(len(r.Faults))]
		gap, length := about(r.Gap), time.Duration(random.Int64N(2*int64(cmp.Or(f.Length, r.Length))+1))
		if err := sleep(ctx, gap); err != nil {
			return err
		}
		r.log("%s for %v", f.Name, length.Round(time.Millisecond))
		err := f.Break(ctx)
		if err == nil {
			err = sleep(ctx, length)
		}
		// Mended even if ctx has ended: the servers may be somebody's.
		if mendErr := f.Mend(context.WithoutCancel(ctx)); mendErr != nil {
			mendErr = fmt.Errorf("%s could not be mended: %w", f.Name, mendErr)
			r.log("%v", mendErr) // also where nobody prints the error, after a signal
			err = errors.Join(err, mendErr)
		}
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.result.Events[f.Name]++
		r.mu.Unlock()
		mended := time.Now()
		if err := r.served(ctx); err != nil {
			return fmt.Errorf("after %s: %w", f.Name, err)
		}
		if err := r.recovered(ctx, f, mended); err != nil {
			return err
		}
	}
	return nil
}

// served waits until the store itself serves.
func (r *run) served(ctx context.Context) error {
	if r.Serves == nil {
		return nil
	}
	began, revived := time.Now(), false
	for {
		err := r.Serves(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return ctx.Err()
		case time.Since(began) < Hung:
			if err := sleep(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		case revived:
			return fmt.Errorf("the store itself serves nobody, although it was revived: %w", err)
		default:
			r.log("the store itself serves nobody: %v", err)
			if err := r.Revive(ctx); err != nil {
				return err
			}
			began, revived = time.Now(), true
			r.mu.Lock()
			r.result.Revived++
			r.mu.Unlock()
		}
	}
}

// recovered waits for the first grant after a fault. A store that serves must grant within the
// TTL of the former holders, its lag and the time for recovery.
func (r *run) recovered(ctx context.Context, f Fault, mended time.Time) error {
	bound, serves := r.TTL+r.Lag+recovery, time.Now()
	for time.Since(serves) < bound {
		r.mu.Lock()
		latest := r.latest
		r.mu.Unlock()
		if latest.After(mended) {
			r.mu.Lock()
			r.result.Longest = max(r.result.Longest, latest.Sub(serves))
			r.mu.Unlock()
			return nil
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	r.finding("no lock was granted for %v after %q was mended and the store served again", bound, f.Name)
	return nil
}

func (r *run) finding(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Findings = append(r.result.Findings, fmt.Sprintf(format, args...))
}

func (r *run) log(format string, args ...any) {
	if r.Params.Log != nil {
		r.Params.Log(fmt.Sprintf("%s: %s", r.Name, fmt.Sprintf(format, args...)))
	}
}

// close closes the clients, side by side.
func (r *run) close() error {
	errs := make([]error, len(r.lockers))
	var wg sync.WaitGroup
	for i, l := range r.lockers {
		wg.Go(func() { errs[i] = l.Close() })
	}
	wg.Wait()
	r.lockers = nil
	return errors.Join(errs...)
}

// sleep waits for d, or fails with the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
