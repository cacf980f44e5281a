package conformance

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	// maxOpening is how many clients of all checks are opened at a time. A server that starts a process for each
	// connection needs 40 ms of a processor for that on a slow machine: if forty clients open at once, none is through
	// before two seconds, nor is a client that is judged and has to connect anew within its lease.
	maxOpening = 4

	// openingShare is how long a client that does not get through keeps others from being opened.
	openingShare = 2 * time.Second
)

// openings are the clients that are opened, and how long that takes.
type openings struct {
	places chan struct{}
	slow   latencies
}

func newOpenings() *openings { return &openings{places: make(chan struct{}, maxOpening)} }

// inTurn runs f when fewer than maxOpening others run, or the check is over. In virtual time there are no turns.
func (o *openings) inTurn(ctx context.Context, f func()) {
	if o == nil {
		f()
		return
	}
	select {
	case o.places <- struct{}{}:
		leave := sync.OnceFunc(func() { <-o.places })
		defer leave()
		defer time.AfterFunc(openingShare, leave).Stop()
	case <-ctx.Done():
	}
	f()
}

// opened notes that a client was opened, since then, over no link that may have been slow, or that it could not be opened in time.
func (o *openings) opened(began time.Time) {
	if o != nil {
		o.slow.since(began)
	}
}

// slowest returns the longest that a client has taken to open since from.
func (o *openings) slowest(from time.Time) time.Duration {
	if o == nil {
		return 0
	}
	return o.slow.longest(from)
}

// timeOpenings returns the longest that one of maxOpening clients takes that are opened at once: of two times the shorter, which
// leaves out a hiccup. In virtual time they take none.
func (c *C) timeOpenings() (longest time.Duration) {
	if c.Virtual() {
		return 0
	}
	for range 2 {
		took := make([]time.Duration, maxOpening)
		c.together(maxOpening, func(i int, _ *rand.Rand) {
			began := time.Now()
			c.open(fmt.Sprint("A", i+1))
			took[i] = time.Since(began)
		})
		longest = min(cmp.Or(longest, slices.Max(took)), slices.Max(took))
	}
	return longest
}
