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

// fairness has waiters of different clients queue one after the other and looks in
// which order they are served, which a driver may promise or not; how evenly clients
// share a name that they fight for comes from the workload.
func fairness(ctx context.Context, l *lab) (Outcome, error) {
	served, seen, err := l.serve(ctx, l.prefix+"fair")
	if err != nil {
		return Outcome{}, err
	}
	overtaken := 0
	for i := 1; i < len(served); i++ {
		if served[i] < slices.Max(served[:i]) {
			overtaken++
		}
	}
	shares, waits, whose := l.result.Figures[HotJain], l.result.Figures[HotWorst], "the workload of many clients on one name"
	if len(shares) == 0 {
		whose = fmt.Sprintf("%d clients that fought for one name for %v", l.queue, l.spell)
		if shares, waits, err = l.fight(ctx, l.prefix+"fight"); err != nil {
			return Outcome{}, err
		}
	}
	jain, _ := shares.Median()
	o := Outcome{Values: waits, Unit: "ms", Detail: fmt.Sprintf("%d clients that had queued one after the other were served in the order %v; "+
		"Jain's index (1 is even) and the longest wait are those of %s", l.queue, served, whose)}
	figures := fmt.Sprintf("Jain %.2f, worst wait %s", jain, span(time.Duration(slices.Max(waits)*float64(time.Millisecond))))
	switch {
	case !l.caps.Fair:
		o.Verdict, o.Text = Caution, "no order promised; "+figures
	case !seen:
		// Who came first is not known for sure, so nobody is accused.
		o.Verdict, o.Text = Caution, "the store shows no queue; "+figures
	case overtaken > 0:
		o.Verdict, o.Text = Bad, fmt.Sprintf("%d of %d served out of order", overtaken, len(served))
	default:
		o.Verdict, o.Text = Good, "in order; "+figures
	}
	return o, nil
}

// serve returns the order in which waiters got a name, who had come in the order of
// their numbers, and whether they were seen to: in the store's own queue.
func (l *lab) serve(ctx context.Context, name string) (served []int, seen bool, err error) {
	ls, err := l.openAll(ctx, l.queue+1)
	defer release(ls...)
	if err != nil {
		return nil, false, err
	}
	ttl := distlock.TTL(l.longTTL)
	lock, err := ls[l.queue].Lock(ctx, name, ttl)
	if err != nil {
		return nil, false, err
	}
	bounded, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	defer all.Wait()
	errs := make([]error, l.queue)
	for i := range l.queue {
		all.Go(func() {
			own, err := ls[i].Lock(bounded, name, ttl)
			if err != nil {
				errs[i] = err
				return
			}
			mu.Lock() // only a broken lock would need it
			served = append(served, i+1)
			mu.Unlock()
			errs[i] = own.Unlock(bounded)
		})
		if seen, err = l.awaitWaiters(bounded, name, i+1); err != nil {
			cancel()
			return nil, false, err
		}
	}
	if err := lock.Unlock(ctx); err != nil {
		cancel()
		return nil, false, err
	}
	all.Wait()
	return served, seen, firstError(errs)
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// fight measures what the workload of many clients on one name does, in small.
func (l *lab) fight(ctx context.Context, name string) (jain, worstWait Series, err error) {
	ls, err := l.openAll(ctx, l.queue)
	defer release(ls...)
	if err != nil {
		return nil, nil, err
	}
	end := time.Now().Add(l.spell)
	turns, waits := make([]float64, len(ls)), make([]time.Duration, len(ls))
	err = each(len(ls), func(i int) error {
		for time.Now().Before(end) {
			asked := time.Now()
			lock, err := ls[i].Lock(ctx, name, distlock.TTL(l.longTTL))
			if err != nil {
				return err
			}
			waits[i] = max(waits[i], time.Since(asked))
			turns[i]++
			if err := lock.Unlock(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	total, squares := 0.0, 0.0
	for _, n := range turns {
		total += n
		squares += n * n
	}
	if err == nil && squares == 0 {
		err = errors.New("no client got the name")
	}
	if err != nil {
		return nil, nil, err
	}
	return Series{total * total / (float64(len(ls)) * squares)}, Series{ms(slices.Max(waits))}, nil
}
