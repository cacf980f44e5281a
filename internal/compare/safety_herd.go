package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

// settling is for everybody who was woken in vain to look: they have when nobody
// did for so long. Those who poll never settle.
const settling, unsettled = 250 * time.Millisecond, 700 * time.Millisecond

// settle returns the number of requests of a route when no more come.
func settle(r *Route) int {
	n := r.Requests()
	for end := time.Now().Add(unsettled); time.Now().Before(end); {
		time.Sleep(settling)
		before := n
		if n = r.Requests(); n == before {
			break
		}
	}
	return n
}

// herd counts the requests that one release causes with many waiting, each in a
// client of its own, and compares them with those that pass without a release. The
// same number of waiters in one client are to cost no more.
func herd(ctx context.Context, l *lab) (o Outcome, err error) {
	route, err := l.rig.Route()
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, route.Close()) }()
	keeper, err := l.open(ctx, l.longTTL)
	if err != nil {
		return o, err
	}
	defer release(keeper)
	crowd, refused := l.crowd(ctx, route)
	defer release(crowd...)
	if len(crowd) < 2 {
		return o, refused
	}
	caused, idle, err := l.stampede(ctx, l.prefix+"herd", route, keeper, crowd, len(crowd), herdReleases)
	if err != nil {
		return o, err
	}
	o = herdOutcome(caused, idle, len(crowd))
	if refused != nil {
		o.Detail += fmt.Sprintf("; more clients could not be opened: %v", refused)
	}
	together := slices.Repeat(crowd[:1], len(crowd))
	if caused, _, err = l.stampede(ctx, l.prefix+"herd-in-one", route, keeper, together, 1, 1); err != nil {
		return o, err
	}
	o.Detail += fmt.Sprintf("; with as many waiting in one client a release caused %d", middle(caused))
	return o, nil
}

// stampede has clients wait for a name of which the store knows queued waiters then,
// and returns how many requests each of so many releases caused, and how many there
// were in the same time without one.
func (l *lab) stampede(ctx context.Context, name string, route *Route, keeper distlock.Locker, crowd []distlock.Locker, queued, releases int) (caused, idle []int, err error) {
	ttl := distlock.TTL(l.longTTL)
	lock, err := keeper.Lock(ctx, name, ttl)
	if err != nil {
		return nil, nil, err
	}
	waiting, cancel := context.WithCancel(ctx)
	line := newLine()
	defer func() { cancel(); line.all.Wait() }()
	for _, c := range crowd {
		line.join(waiting, c, name, ttl)
	}
	if _, err := l.awaitWaiters(ctx, name, queued); err != nil {
		return nil, nil, err
	}
	return l.releases(ctx, route, lock, line, releases)
}

// crowd opens a client for each waiter, or as many as the server takes. A server
// that others use gets a fifth of them, lest it run out of connections.
func (l *lab) crowd(ctx context.Context, route *Route) (crowd []distlock.Locker, refused error) {
	waiters := l.waiters
	if l.rig.Control == nil {
		waiters /= 5
	}
	// A few at a time: a hundred handshakes at once are not what is measured here.
	const batch = 10
	for len(crowd) < waiters && refused == nil {
		n := min(batch, waiters-len(crowd))
		more := make([]distlock.Locker, n)
		refused = each(n, func(i int) (err error) {
			bounded, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			more[i], err = route.Open(bounded, l.longTTL)
			return err
		})
		crowd = append(crowd, slices.DeleteFunc(more, func(l distlock.Locker) bool { return l == nil })...)
	}
	return crowd, refused
}

// herdReleases are so many that the median is none of those into which a regular
// request of every waiter falls, such as the one that keeps its place in the queue.
const herdReleases = 5

// releases lets holder after holder go, and counts.
func (l *lab) releases(ctx context.Context, route *Route, lock distlock.Lock, line *line, n int) (caused, idle []int, err error) {
	for range n {
		before, began := settle(route), time.Now()
		if err := lock.Unlock(ctx); err != nil {
			return nil, nil, err
		}
		if lock, err = line.next(ctx); err != nil {
			return nil, nil, err
		}
		after := settle(route)
		caused = append(caused, after-before)
		before = after
		time.Sleep(time.Since(began))
		idle = append(idle, route.Requests()-before)
	}
	return caused, idle, nil
}

// herdOutcome judges by the number of waiters: a release that wakes them all causes
// a request of each at the least, one that wakes the next alone a few in all.
func herdOutcome(caused, idle []int, waiters int) Outcome {
	o := Outcome{Verdict: Good, Unit: "requests"}
	for _, n := range caused {
		o.Values = append(o.Values, float64(n))
	}
	n, quiet := middle(caused), middle(idle)
	o.Text = fmt.Sprintf("%d requests", n)
	switch {
	case n-quiet >= waiters-len(caused): // those served before do not wait any more
		o.Verdict, o.Text = Bad, fmt.Sprintf("wakes everybody: %d requests", n)
	case quiet >= waiters/2:
		o.Verdict, o.Text = Caution, fmt.Sprintf("waiters poll: %d requests", n)
	case n >= waiters/2:
		o.Verdict = Caution
	}
	o.Detail = fmt.Sprintf("turns of conversation that a proxy counted around one release with %d waiting clients; in the same time without a release there were %d",
		waiters, quiet)
	return o
}

func middle(ns []int) int { return slices.Sorted(slices.Values(ns))[len(ns)/2] }

// line is clients that wait for one name.
type line struct {
	all  sync.WaitGroup
	held chan heir // unbuffered: who gets the name waits until somebody asks who it is
}

func newLine() *line { return &line{held: make(chan heir)} }

// join has a client wait in the line until ctx ends.
func (w *line) join(ctx context.Context, c distlock.Locker, name string, ttl distlock.Option) {
	w.all.Go(func() {
		lock, err := c.Lock(ctx, name, ttl)
		select {
		case w.held <- heir{lock: lock, at: machineNow(), err: err}:
		case <-ctx.Done():
		}
	})
}

// next returns the lock of whoever has got the name, or will.
func (w *line) next(ctx context.Context) (distlock.Lock, error) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case h := <-w.held:
		return h.lock, h.err
	case <-limit.C:
		return nil, fmt.Errorf("nobody of those who wait got the name within %v", patience)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
