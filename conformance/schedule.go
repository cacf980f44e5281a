package conformance

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// launched is the checks of a suite, some of them under way.
type launched struct {
	futures []*future
	end     context.CancelFunc
	workers sync.WaitGroup
}

// future is the result of a check. It is computed once: by a worker, or by wait if
// that comes first.
type future struct {
	check  Check
	once   sync.Once
	run    func() Result
	result Result
	done   bool // whether run has ended
}

func (f *future) get() Result {
	f.once.Do(func() { f.result, f.done = f.run(), true })
	return f.result
}

// launch starts workers on the checks likely to be asked for, those first that take
// longest. The guess need not be right: the others run when they are waited for, and
// only what is waited for is reported.
func (s *suite) launch(likely func(Check) bool, tell func(Result)) *launched {
	ctx, end := context.WithCancel(s.ctx)
	l := &launched{end: end}
	var light, heavy []*future
	for _, k := range s.checks {
		f := &future{check: k, run: func() Result {
			r := s.examine(k)
			tell(r)
			return r
		}}
		l.futures = append(l.futures, f)
		switch {
		case !likely(k) || k.Alone:
		case k.Heavy:
			heavy = append(heavy, f)
		default:
			light = append(light, f)
		}
	}
	next, first := queue(light), queue(heavy)
	work := func(from <-chan *future) {
		for f := range from {
			if ctx.Err() != nil {
				return
			}
			f.get()
		}
	}
	for n := range min(s.opts.Parallel, len(light)+len(heavy)) {
		l.workers.Go(func() {
			if n < maxHeavy {
				work(first)
			}
			work(next)
		})
	}
	return l
}

// maxHeavy is how many heavy checks run at a time.
const maxHeavy = 2

// queue returns the checks, those first that take longest.
func queue(checks []*future) <-chan *future {
	next := make(chan *future, len(checks))
	slices.SortStableFunc(checks, func(a, b *future) int { return cmp.Compare(rank(a.check.ID), rank(b.check.ID)) })
	for _, f := range checks {
		next <- f
	}
	close(next)
	return next
}

// longest lists checks that take four units or more on real servers, in the order that
// they begin in: what begins last decides when all have ended.
var longest = []string{
	"time/months", "wait/for-days", "fence/over-idle",
	"after/lives", "after/extends", "after/inherits", "after/expires", "after/woken",
	"time/long-renewed", "handover/order-kept", "lost/quiet-when-healthy", "batch/own-ttl",
	"elect/one-leader", "fault/black-hole",
	"fault/lapse-and-return", "handover/lease",
	"cancel/race-with-grant", "expiry/killed-holder", "close/dead-server", "once/long-run", "isolate/stuck-name",
	"batch/late-answer", "time/extend-fractions", "batch/late-request", "batch/each-renewed", "batch/one-lost",
	"handover/deadline", "handover/undone",
	"owner/same-client-stale", "isolate/stuck-holder", "expiry/mass-expiry",
	"stress/boundary-history", "lost/paused-client", "time/untouched", "renew/late-request",
	"pair/reply-lost", "pair/request-lost", "pair/lock-held", "pair/try-expired",
	"maxhold/cap",
}

// rank returns the place of a check in the queue.
func rank(id string) int {
	if i := slices.Index(longest, id); i >= 0 {
		return i
	}
	return len(longest)
}

// wait returns the result of the i-th check. The workers are let finish before one
// that must run alone: in the midst of them it would hold up all, until the longest
// of those under way is over.
func (l *launched) wait(i int) Result {
	f := l.futures[i]
	if f.check.Alone {
		l.workers.Wait()
	}
	return f.get()
}

// stop waits for the checks under way and starts no other.
func (l *launched) stop() {
	l.end()
	l.workers.Wait()
}

// done returns the results so far, in the order of the table. It is for after stop:
// a worker may have ended a check that nothing has waited for.
func (l *launched) done() []Result {
	var done []Result
	for _, f := range l.futures {
		if f.done {
			done = append(done, f.result)
		}
	}
	return done
}
