package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

func electChecks() []Check {
	return []Check{
		{ID: "elect/one-leader", Clause: "P1", Mandatory: true, Run: electOneLeader,
			Rule: "at any time there is one leader at the most, also over terms longer than the TTL; each term has a higher number, and one that resigns makes room for another"},
		{ID: "elect/never-stale", Clause: "P1", Mandatory: true, Run: electNeverStale,
			Rule: "a leader that has lost its term is told by its context, and Leader says no, although its function still runs"},
	}
}

// errResigned ends a term.
var errResigned = errors.New("the leader resigns")

func electOneLeader(c *C) {
	const terms = 3
	name, ttl := c.Name("x"), c.fits(c.Unit())
	t := &leadership{c: c, name: name, ttl: ttl}
	c.watchStore()
	stand, cancel := context.WithCancel(c.ctx)
	defer cancel()
	over := make(chan string, terms)
	for _, who := range []string{"A", "B"} {
		c.open(who).elect(stand, name, ttl, func(ctx context.Context, term int64) error {
			t.begin(who, term)
			defer t.end(who)
			began := c.now()
			select {
			case <-ctx.Done():
				if stand.Err() == nil {
					c.excuse(began, ttl, name, context.Cause(ctx))
				}
				return context.Cause(ctx)
			case <-time.After(ttl * 3 / 2):
			}
			select {
			case over <- who:
			default:
			}
			return errResigned
		})
	}
	led := make(map[string]bool)
	for range terms {
		// One that has resigned pauses, and the other has been waiting.
		who := await(c, over, 2*ttl+c.soon()+c.timing.ExpiryLag, "two stand for election, and one has to lead for %v", ttl*3/2)
		led[who] = true
	}
	if len(led) != 2 {
		c.Failf("of %d terms, one of two has led in all: the other was waiting each time when it resigned", terms)
	}
}

// leadership is what one client has at a time.
type leadership struct {
	c    *C
	name string
	ttl  time.Duration

	mu     sync.Mutex
	leader string
	last   int64
}

// begin makes a client the leader, and ends the check if there is one.
func (t *leadership) begin(who string, term int64) {
	t.mu.Lock()
	before, last := t.leader, t.last
	t.leader, t.last = who, term
	t.mu.Unlock()
	switch {
	case before != "": // a leader may be told that its term is lost later than the next one begins
		t.c.excuse(0, t.ttl, t.name, distlock.ErrLost)
		t.c.Failf("%s became the leader at %s while %s was", who, millis(t.c.now()), before)
	case term <= last:
		t.c.Failf("%s became the leader with term %d after %d", who, term, last)
	}
}

func (t *leadership) end(who string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leader == who {
		t.leader = ""
	}
}

// await returns what comes by a channel, and ends the check if nothing does within the
// bound. The text says what was to be expected.
func await[T any](c *C, ch <-chan T, bound time.Duration, format string, args ...any) (got T) {
	came := make(chan struct{})
	c.Go(func() {
		select {
		case got = <-ch:
			close(came)
		case <-c.ctx.Done():
		}
	})
	if !c.within(came, bound) {
		c.Failf("within %v, by %s: %s", bound, millis(c.now()), fmt.Sprintf(format, args...))
	}
	return got
}

func electNeverStale(c *C) {
	a, b := c.open("A"), c.open("B")
	name, ttl := c.Name("x"), c.fits(c.Unit())
	leads, told, end := make(chan int64, 1), make(chan error, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	first := a.elect(ctx, name, ttl, func(ctx context.Context, term int64) error {
		leads <- term
		<-ctx.Done()
		told <- context.Cause(ctx)
		select { // it goes on, as code does that does not heed its context
		case <-end:
		case <-c.ctx.Done():
		}
		return errResigned
	})
	defer close(end)
	soon := patience + c.Slack()
	term := await(c, leads, soon, "A alone stands for election, and has to lead")
	if got, ok := first.Leader(); !ok || got != term {
		c.Failf("A leads with term %d, but Leader says %v, %d", term, ok, got)
	}
	if err := b.breaks(name, term); err != nil {
		c.unheard(err, "B", name)
		c.Failf("A leads with term %d, and Break with that token returned: %v", term, err)
	}
	// It learns with its next renewal, which comes after a third of the TTL.
	err := await(c, told, c.atMost(ttl)/2+c.soon(), "A's term was ended by Break, and the context of its function has to end")
	if !errors.Is(err, distlock.ErrLost) {
		c.Failf("A lost its term, and the cause in its context is %s; it must match ErrLost", describe(err))
	}
	if got, ok := first.Leader(); ok {
		c.Failf("A has lost its term, and Leader says that it leads, with term %d", got)
	}
	next := make(chan int64, 1)
	second := b.elect(ctx, name, ttl, func(ctx context.Context, term int64) error {
		next <- term
		<-ctx.Done()
		return context.Cause(ctx)
	})
	got := await(c, next, soon, "A's term was ended by Break, and B has to lead")
	_, still := first.Leader()
	if _, ok := second.Leader(); still || !ok || got <= term {
		c.Failf("B leads with term %d after A's %d; Leader says of A %v, and of B %v", got, term, still, ok)
	}
}
