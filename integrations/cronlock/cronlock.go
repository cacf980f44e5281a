// Package cronlock lets several processes with robfig/cron run each job once per tick,
// on any backend of distlock.
//
//	every := cronlock.Once(locker, "report", time.Minute, logger) // a job of every minute
//	c.AddJob("* * * * *", every(cron.FuncJob(report)))
package cronlock

import (
	"context"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/patterns"
)

// Prefix begins the names of all locks, so that they never conflict with those of other programs.
const Prefix = "cron/"

// Once returns a wrapper that runs a job at most once per period, over all processes that
// use the same name. The period is the interval of the job: it ends a tenth early, so that
// the next tick finds the name free. A process that comes late leaves the tick out and
// waits for nothing.
//
// A cron.Job has no context: if the lock is lost while the job runs, it runs on, perhaps
// beside another, and the logger is told. A job that must stop then uses patterns.OncePer
// itself. The caller closes l when cron has stopped.
func Once(l distlock.Locker, name string, period time.Duration, logger cron.Logger) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			ran, err := patterns.OncePer(context.Background(), patterns.Prefix(l, Prefix), name, period, func(context.Context) error {
				job.Run()
				return nil
			})
			switch {
			case err != nil:
				logger.Error(err, "the lock of a job failed", "lock", name, "ran", ran)
			case !ran:
				logger.Info("skip", "lock", name, "reason", "another process runs it, or has run it")
			}
		})
	}
}
