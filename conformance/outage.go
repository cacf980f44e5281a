package conformance

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// lookPatience is how long a look, or the opening of a client, may take: leases of a second and less run beside it.
const lookPatience = time.Second

// Outage is for how long a store has not answered, or has taken no new client, as Options.Look and the opening of clients have told.
type Outage struct {
	Lasted time.Duration // in all
	Checks int           // that ran meanwhile, and stayed inconclusive
	Last   error         // what was told last; nil if the store only took its time
}

// Err returns nil if no check was in vain by that, and else why nothing is known. It matches Last.
func (o Outage) Err() error {
	if o.Checks == 0 {
		return nil
	}
	err := fmt.Errorf("%s for %v; what %s found meanwhile says nothing", silent, o.Lasted.Round(100*time.Millisecond), plural(o.Checks, "check"))
	if o.Last != nil {
		err = fmt.Errorf("%w; it said last: %w", err, o.Last)
	}
	return err
}

// silent is what an outage is, in words.
const silent = "the store did not answer, or took no new client,"

// outages are the times at which the store did not answer. Those of checks in virtual time, and without Options.Look, are nil:
// nobody says then that the store has ever answered.
type outages struct {
	look  func(context.Context) error
	ended chan struct{}

	mu     sync.Mutex
	spans  []silence // in the order of their ends; none meets another
	last   error
	looked chan struct{} // closed when the look under way, or the next, is over; then made anew
	checks int
}

func newOutages(look func(context.Context) error) *outages {
	if look == nil {
		return nil
	}
	return &outages{look: look, ended: make(chan struct{}), looked: make(chan struct{})}
}

// watch looks until ctx ends, also beside a check that runs alone.
func (o *outages) watch(ctx context.Context) {
	defer close(o.ended)
	for ctx.Err() == nil {
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, lookPatience)
		err := o.look(bounded)
		cancel()
		if ctx.Err() == nil {
			o.note(began, err)
		}
		o.mu.Lock()
		close(o.looked)
		o.looked = make(chan struct{})
		o.mu.Unlock()
		select {
		case <-time.After(beatEvery):
		case <-ctx.Done():
		}
	}
}

// note notes what was told by a look, or as a client was opened, which began then and ends now. The store has taken clients
// before: if it takes none now, or takes its time while leases run, that is its state.
func (o *outages) note(began time.Time, err error) {
	if o == nil || err == nil && time.Since(began) < lookPatience {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = cmp.Or(err, o.last)
	s := silence{from: began, to: time.Now().Add(beatEvery)}
	for n := len(o.spans); n > 0 && s.from.Before(o.spans[n-1].to.Add(beatEvery)); n-- { // the same outage
		if o.spans[n-1].from.Before(s.from) {
			s.from = o.spans[n-1].from
		}
		o.spans = o.spans[:n-1]
	}
	o.spans = append(o.spans, s)
}

// since returns why a check that began then and has failed, or was inconclusive, says nothing. A look may still be about to
// find that.
func (o *outages) since(began time.Time) (why string) {
	if o == nil {
		return ""
	}
	o.mu.Lock()
	looked := o.looked
	o.mu.Unlock()
	select {
	case <-looked:
	case <-o.ended:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.spans); n > 0 && began.Before(o.spans[n-1].to) {
		why = fmt.Sprintf("%s for %v meanwhile", silent, o.spans[n-1].to.Sub(o.spans[n-1].from).Round(time.Millisecond))
		if o.last != nil {
			why += ": " + o.last.Error()
		}
	}
	return why
}

// spoilt counts a check that stayed inconclusive for that reason.
func (o *outages) spoilt() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checks++
}

func (o *outages) outage() (all Outage) {
	if o == nil {
		return all
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.spans {
		all.Lasted += s.to.Sub(s.from)
	}
	all.Checks, all.Last = o.checks, o.last
	return all
}
