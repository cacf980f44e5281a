package compare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/distlock-go/distlock"
)

// cancelledWaiter looks for what calls leave behind that were cancelled: in the
// queue behind a holder, and, where a proxy can slow the network down, while their
// own request is on its way.
func cancelledWaiter(ctx context.Context, l *lab) (Outcome, error) {
	queued, err := l.repeat(ctx, "cancelled", l.cancelQueued)
	if err != nil {
		return Outcome{}, err
	}
	detail := fmt.Sprintf("from the holder's Unlock to the return of Lock in a client that had come after a waiter which was cancelled; "+
		"anything left of that one would stay for its TTL of %v", l.longTTL)
	if slices.ContainsFunc(queued, func(t trial) bool { return t.also > 0 }) {
		detail += "; its place in the queue was gone within " + longestAlso(queued)
	}
	if l.rig.Route == nil {
		return judge(queued, detail+"; calls cancelled with their request on its way: "+lacksRoute(l.rig), nextHeld), nil
	}
	if slices.ContainsFunc(queued, func(t trial) bool { return t.flaw != "" }) {
		return judge(queued, detail, nextHeld), nil
	}
	late, err := l.repeat(ctx, "cancelled-late", l.cancelInFlight)
	if err != nil {
		return Outcome{}, err
	}
	detail += "; the last values: from the end of calls that were cancelled with their request on its way"
	return judge(append(queued, late...), detail, nextHeld), nil
}

func nextHeld(ds []time.Duration) (Verdict, string) {
	return Good, "nothing left; next after " + span(slices.Max(ds))
}

// cancelQueued cancels a waiter and lets the holder go.
func (l *lab) cancelQueued(ctx context.Context, name string, _ time.Duration) (t trial, err error) {
	ls, err := l.openAll(ctx, 3)
	defer release(ls...)
	if err != nil {
		return t, err
	}
	ttl := distlock.TTL(l.longTTL)
	lock, err := ls[0].Lock(ctx, name, ttl)
	if err != nil {
		return t, err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	first := succeed(waiting, ls[1], name, l.longTTL)
	queues, err := l.awaitWaiters(ctx, name, 1)
	if err != nil {
		return t, err
	}
	time.Sleep(rand.N(200 * time.Millisecond)) // at whatever moment of its waiting
	cancelled := machineNow()
	cancel()
	if h := <-first; h.err == nil {
		return t, errStall // the holder's lock was lost
	}
	if queues {
		if t.flaw, err = l.awaitEmpty(ctx, name); t.flaw != "" || err != nil {
			return t, err
		}
		t.also = machineNow() - cancelled
	}
	next := succeed(ctx, ls[2], name, l.longTTL)
	if _, err := l.awaitWaiters(ctx, name, 1); err != nil {
		return t, err
	}
	freed := machineNow()
	if err := lock.Unlock(ctx); err != nil {
		return t, err
	}
	return l.heldSoon(ctx, t, next, freed)
}

// heldSoon waits for a name that has to be free.
func (l *lab) heldSoon(ctx context.Context, t trial, next <-chan heir, freed time.Duration) (trial, error) {
	limit := time.NewTimer(l.leftoverBound())
	defer limit.Stop()
	select {
	case h := <-next:
		t.value = h.at - freed
		if h.err == nil && t.value < 0 {
			t.flaw = "two holders: the cancelled call has freed the name"
		}
		return t, h.err
	case <-limit.C:
		t.flaw = "leftover blocks the name for more than " + span(l.leftoverBound())
		return t, nil
	case <-ctx.Done():
		return t, ctx.Err()
	}
}

// leftoverBound is longer than any clean-up takes, and shorter than what is not
// cleaned up lasts by itself.
func (l *lab) leftoverBound() time.Duration { return min(l.patience, l.longTTL*3/4) }

// awaitWaiters waits until the store shows so many waiters. It reports false if the
// store does not show any; then it waits for a moment only.
func (l *lab) awaitWaiters(ctx context.Context, name string, n int) (bool, error) {
	for limit := time.Now().Add(patience); ; {
		st, err := distlock.Inspect(ctx, l.admin, name)
		switch {
		case errors.Is(err, distlock.ErrUnsupported) || err == nil && st.Waiters < 0:
			time.Sleep(200 * time.Millisecond)
			return false, ctx.Err()
		case err != nil:
			return false, err
		case st.Waiters >= n:
			return true, nil
		case time.Now().After(limit):
			return false, errStall
		}
		time.Sleep(look)
	}
}

// awaitEmpty waits until nobody is queued for a name.
func (l *lab) awaitEmpty(ctx context.Context, name string) (flaw string, err error) {
	for limit := time.Now().Add(l.leftoverBound()); ; {
		st, err := distlock.Inspect(ctx, l.admin, name)
		switch {
		case err != nil:
			return "", err
		case st.Waiters == 0:
			return "", nil
		case time.Now().After(limit):
			return "its place in the queue stays for more than " + span(l.leftoverBound()), nil
		}
		time.Sleep(look)
	}
}

// cancelInFlight cancels calls for a free name while their requests are on a slow
// network; then somebody else must get the name.
func (l *lab) cancelInFlight(ctx context.Context, name string, _ time.Duration) (t trial, err error) {
	const latency, calls = 40 * time.Millisecond, 5
	route, err := l.rig.Route()
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, route.Close()) }()
	a, err := route.Open(ctx, l.longTTL)
	if err != nil {
		return t, err
	}
	defer func() { route.Heal(); release(a) }()
	ls, err := l.openAll(ctx, 1)
	defer release(ls...)
	if err != nil {
		return t, err
	}
	route.Delay(latency, latency/2)
	for i := range calls { // the first one before anything can have come back, the last one about then
		bounded, cancel := context.WithTimeout(ctx, latency*time.Duration(i+1)/calls-rand.N(latency/calls))
		if lock, err := a.Lock(bounded, name, distlock.TTL(l.longTTL)); err == nil {
			_ = lock.Unlock(ctx) // it got through; what it leaves shows below
		}
		cancel()
	}
	over := machineNow()
	return l.heldSoon(ctx, t, succeed(ctx, ls[0], name, l.longTTL), over)
}

// openAll opens clients for locks of the long TTL. It returns those that it has also
// with an error.
func (l *lab) openAll(ctx context.Context, n int) ([]distlock.Locker, error) {
	ls := make([]distlock.Locker, n)
	err := each(n, func(i int) (err error) {
		ls[i], err = l.open(ctx, l.longTTL)
		return err
	})
	return slices.DeleteFunc(ls, func(l distlock.Locker) bool { return l == nil }), err
}
