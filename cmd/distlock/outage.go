package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/compare/render"
)

const (
	// lookEvery is how often the store is asked whether it is there. lookPatience is how
	// long it may take to answer: the checks have leases of a second and less.
	lookEvery    = 250 * time.Millisecond
	lookPatience = time.Second
)

// storeWatch looks, beside the checks, whether the store answers at all, and takes one more
// client: a server has room for so many connections. What fails while it does not is no fault of
// the driver.
type storeWatch struct {
	admin distlock.Locker
	login func(context.Context) (distlock.Locker, error)
	end   context.CancelFunc
	ended chan struct{}

	mu     sync.Mutex
	looked chan struct{} // closed when the look under way is over; then made anew
	spans  []span        // the store did not answer in them
	last   error         // what the last look was told that was no answer
	over   map[string]span
}

type span struct{ from, to time.Time }

func (s span) meets(t span) bool { return s.from.Before(t.to) && t.from.Before(s.to) }

func watchStore(admin distlock.Locker, login func(context.Context) (distlock.Locker, error)) *storeWatch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &storeWatch{admin: admin, login: login, end: cancel, ended: make(chan struct{}),
		looked: make(chan struct{}), over: make(map[string]span)}
	go func() {
		defer close(w.ended)
		for ctx.Err() == nil {
			w.look(ctx)
			select {
			case <-time.After(lookEvery):
			case <-ctx.Done():
			}
		}
	}()
	return w
}

// look asks once, with a connection that stands and with a new client.
func (w *storeWatch) look(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	from := time.Now()
	_, err := distlock.Inspect(bounded, w.admin, "conf-watch")
	if err == nil || errors.Is(err, distlock.ErrUnsupported) {
		var client distlock.Locker
		if client, err = w.login(bounded); err == nil {
			defer client.Close()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		w.unanswered(from, err)
	}
	close(w.looked)
	w.looked = make(chan struct{})
}

// unanswered notes that the store has not answered from then until now, and what was said instead, if anything was; w.mu is
// held.
func (w *storeWatch) unanswered(from time.Time, err error) {
	w.last = cmp.Or(err, w.last)
	if n := len(w.spans); n > 0 && from.Sub(w.spans[n-1].to) < 2*lookEvery { // the same outage
		if w.spans[n-1].from.Before(from) {
			from = w.spans[n-1].from
		}
		w.spans = w.spans[:n-1]
	}
	w.spans = append(w.spans, span{from, time.Now().Add(lookEvery)})
}

// opened notes what came of the opening of a client for a check. The store has taken clients before: if it takes none now,
// or takes its time over a login while leases run, that is its state.
func (w *storeWatch) opened(from time.Time, err error) {
	if err == nil && time.Since(from) < lookPatience {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unanswered(from, err)
}

func (w *storeWatch) stop() {
	w.end()
	<-w.ended
}

// excuse returns the result of a check that has just ended. It is inconclusive if it failed
// and the store did not answer meanwhile. A look may still be about to find that.
func (w *storeWatch) excuse(r conformance.Result) conformance.Result {
	ran := span{time.Now().Add(-r.Took), time.Now()}
	w.mu.Lock()
	w.over[r.ID] = ran
	looked := w.looked
	w.mu.Unlock()
	if r.Status == conformance.Failed {
		select {
		case <-looked:
		case <-w.ended:
		}
	}
	return w.excused(r)
}

func (w *storeWatch) excused(r conformance.Result) conformance.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, down := range w.spans {
		if r.Status == conformance.Failed && down.meets(w.over[r.ID]) {
			r.Status = conformance.Inconclusive
			r.Reason = fmt.Sprintf("the store did not answer, or took no new client, for %v while this check ran, so it says nothing; seen: %s",
				down.to.Sub(down.from).Round(100*time.Millisecond), r.Reason)
		}
	}
	return r
}

// judge does the same with all results of a report, and returns how many are inconclusive
// because the store did not answer.
func (w *storeWatch) judge(report *conformance.Report) (unanswered int) {
	for i, r := range report.Results {
		r = w.excused(r)
		report.Results[i] = r
		w.mu.Lock()
		for _, down := range w.spans {
			if r.Status == conformance.Inconclusive && down.meets(w.over[r.ID]) {
				unanswered++
				break
			}
		}
		w.mu.Unlock()
	}
	return unanswered
}

// failure says for how long the store did not answer, in all, and what it said last.
func (w *storeWatch) failure(unanswered int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var sum time.Duration
	for _, s := range w.spans {
		sum += s.to.Sub(s.from)
	}
	err := fmt.Errorf("the store did not answer, or took no new client, for %v; what %s found meanwhile says nothing", sum.Round(100*time.Millisecond), render.Plural(unanswered, "check"))
	if w.last != nil {
		err = fmt.Errorf("%w; it said last: %w; --parallel 1 takes fewer connections", err, w.last)
	}
	return err
}
