// Package gocronlock lets several schedulers of gocron run each job once per tick, or
// only those of the leader, on any backend of distlock.
//
//	scheduler, err := gocron.NewScheduler(
//		gocron.WithDistributedLocker(gocronlock.New(locker, time.Minute))) // jobs of every minute
package gocronlock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/patterns"
)

// Prefix begins the names of all locks, so that they never conflict with those of other programs.
const Prefix = "gocron/"

// ErrElsewhere is returned by a Locker if the job runs, or has run in this period, in
// another process, or is led by one. gocron passes it to AfterLockError: see New.
var ErrElsewhere = errors.New("gocronlock: the job is another scheduler's")

type locker struct {
	locker distlock.Locker
	period time.Duration
}

// New returns a gocron.Locker that runs a job at most once per period, over all
// schedulers. Schedulers start a tick at slightly different times. A lock freed with the
// end of a short job lets the late ones run it again. So the name stays taken for the
// period, from the start of the job.
//
// The period is the interval of the jobs: it ends a tenth early, so that the next tick
// finds the name free. Jobs with other intervals have a Locker of their own, by
// gocron.WithDistributedJobLocker. The lock is named by the job, so name jobs with
// gocron.WithName: the default is that of the function. It never waits: a scheduler that
// comes late leaves the tick out. The caller closes l after the scheduler.
//
// gocron drops the error of a lock that was not had, and leaves the tick out: a store
// that is down, or a period that it cannot keep, looks like jobs that run elsewhere. So
// listen to it, and leave out ErrElsewhere, which is no failure:
//
//	gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, job string, err error) {
//		if !errors.Is(err, gocronlock.ErrElsewhere) {
//			slog.Warn("the job does not run", "job", job, "err", err)
//		}
//	}))
func New(l distlock.Locker, period time.Duration) gocron.Locker {
	return &locker{patterns.Prefix(l, Prefix), period}
}

// Lock implements gocron.Locker.
func (l *locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	r := &run{began: make(chan struct{}), unlocked: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		_, r.err = patterns.OncePer(ctx, l.locker, key, l.period, func(ctx context.Context) error {
			select {
			case r.began <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err() // nobody runs the job: the name is free
			}
			<-r.unlocked // also if gocron's context has ended: the job still runs
			return nil
		})
	}()
	select {
	case <-r.began:
		return r, nil
	case <-r.ended:
		return nil, cmp.Or(r.err, ErrElsewhere)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run is one run of a job.
type run struct {
	began    chan struct{} // sent to once the lock is held
	unlocked chan struct{} // closed when the job has returned
	ended    chan struct{} // closed when the lock is left or freed, or was not had
	err      error         // of OncePer; set before ended is closed
}

// Unlock implements gocron.Lock. It is called once, with a context that may have ended.
// gocron drops its error. The error matches distlock.ErrLost if the lock was lost while
// the job ran.
func (r *run) Unlock(context.Context) error {
	close(r.unlocked)
	<-r.ended
	return r.err
}

// Elector is a gocron.Elector: only the leader's scheduler runs jobs. It is safe for
// concurrent use.
type Elector struct {
	election *patterns.Election
	leave    context.CancelFunc
}

// NewElector stands for the election of that name until Close. The caller closes l
// after it.
func NewElector(l distlock.Locker, name string) *Elector {
	ctx, leave := context.WithCancel(context.Background())
	return &Elector{leave: leave, election: patterns.Elect(ctx, patterns.Prefix(l, Prefix), name,
		func(ctx context.Context, _ int64) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})}
}

// IsLeader implements gocron.Elector. It asks the lock, and so the clock. A process
// stopped for longer than its lease is no leader with the first thing that it does.
func (e *Elector) IsLeader(context.Context) error {
	if _, ok := e.election.Leader(); !ok {
		return ErrElsewhere
	}
	return nil
}

// Close leaves the election, so that another scheduler can lead.
func (e *Elector) Close() error {
	e.leave()
	if err := e.election.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
