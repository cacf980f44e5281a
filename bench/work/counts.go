package work

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/bench/result"
)

// requests counts what a lock and unlock of a free name costs, for a name that was
// used before and for names that were not.
func requests(ctx context.Context, s *session) (Figures, error) {
	const pairs = 100
	c, err := s.openAt(ctx, s.Metered, false)
	if err != nil {
		return nil, err
	}
	known := func(int) string { return s.Prefix + "known" }
	// The first use of a client connects, and makes what all names share.
	for range 5 {
		if err := lockUnlock(ctx, c, known(0)); err != nil {
			return nil, err
		}
	}
	f := make(Figures)
	for figure, name := range map[result.Figure]func(i int) string{
		result.Known: known,
		result.New:   func(i int) string { return fmt.Sprintf("%snew-%d", s.Prefix, i) },
	} {
		before, err := s.requests()
		if err != nil {
			return nil, err
		}
		for i := range pairs {
			if err := lockUnlock(ctx, c, name(i)); err != nil {
				return nil, err
			}
		}
		after, err := s.requests()
		if err != nil {
			return nil, err
		}
		f[figure] = float64(after-before) / pairs
	}
	return f, nil
}

// waitingGoroutines counts what n goroutines of one process send while they wait
// for a name that somebody else holds.
func waitingGoroutines(n int) func(context.Context, *session) (Figures, error) {
	return func(ctx context.Context, s *session) (Figures, error) {
		c, err := s.openAt(ctx, s.Metered, false)
		if err != nil {
			return nil, err
		}
		return s.countWaiting(ctx, n, func(int) peers.Client { return c })
	}
}

// waitingClients does so with n clients, that is processes, of one goroutine each.
func waitingClients(n int) func(context.Context, *session) (Figures, error) {
	return func(ctx context.Context, s *session) (Figures, error) {
		clients := make([]peers.Client, n)
		err := each(n, func(i int) error {
			var err error
			clients[i], err = s.openAt(ctx, s.Metered, false)
			return err
		})
		if err != nil {
			return nil, err
		}
		return s.countWaiting(ctx, n, func(i int) peers.Client { return clients[i] })
	}
}

const (
	// settle is how long those who have come to wait are given to get quiet.
	settle = 2 * time.Second
	// clearBound is how long they may take to leave, before the job ends without.
	clearBound = 5 * time.Second
)

// countWaiting has n goroutines wait. The holder does not go by the proxies.
func (s *session) countWaiting(ctx context.Context, n int, client func(i int) peers.Client) (Figures, error) {
	holder, err := s.open(ctx, true)
	if err != nil {
		return nil, err
	}
	name := s.Prefix + "waited"
	held, err := holder.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	var counts [3]int64
	if counts[0], err = s.requests(); err != nil {
		return nil, err
	}
	waitCtx, leave := context.WithCancel(ctx)
	defer leave()
	var waiting sync.WaitGroup
	for i := range n {
		waiting.Go(func() { _ = lockUnlock(waitCtx, client(i), name) }) // most are sent away in the end
	}
	time.Sleep(settle)
	if counts[1], err = s.requests(); err != nil {
		return nil, err
	}
	start := time.Now()
	time.Sleep(s.Duration)
	if counts[2], err = s.requests(); err != nil {
		return nil, err
	}
	took := time.Since(start).Seconds()
	if held.Lost() {
		return nil, fmt.Errorf("the lock that was waited for was lost")
	}
	if err := held.Unlock(ctx); err != nil {
		return nil, err
	}
	time.AfterFunc(clearBound, leave)
	clear := make(chan struct{})
	go func() {
		waiting.Wait()
		close(clear)
	}()
	select {
	case <-clear:
	case <-time.After(2 * clearBound):
	}
	rate := float64(counts[2]-counts[1]) / took
	return Figures{
		result.Total: float64(counts[1] - counts[0]),
		result.All:   rate,
		result.Each:  rate / float64(n),
	}, nil
}

// waiters lets n goroutines of one process wait for a name, frees it, and sees who
// gets it, in which order, and how long it takes until all have had it.
func waiters(n int) func(context.Context, *session) (Figures, error) {
	return func(ctx context.Context, s *session) (Figures, error) {
		clients, err := s.several(ctx, 2)
		if err != nil {
			return nil, err
		}
		name := s.Prefix + "served"
		held, err := clients[0].Lock(ctx, name)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, serveBound+time.Duration(n)*comeApart(n))
		defer cancel()
		var (
			mu     sync.Mutex
			served []int
			failed error
			ended  sync.WaitGroup
		)
		for i := range n {
			came := make(chan struct{})
			ended.Go(func() {
				close(came)
				h, err := clients[1].Lock(ctx, name)
				if err == nil {
					mu.Lock()
					served = append(served, i)
					mu.Unlock()
					err = h.Unlock(ctx)
				}
				if err != nil && ctx.Err() == nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			})
			<-came
			time.Sleep(comeApart(n))
		}
		time.Sleep(settle / 4)
		start := time.Now()
		if err := held.Unlock(ctx); err != nil {
			return nil, err
		}
		ended.Wait()
		if failed != nil {
			return nil, failed
		}
		return Figures{
			result.Serve: float64(len(served)),
			result.Took:  time.Since(start).Seconds(),
			result.Moved: float64(furthest(served)),
		}, nil
	}
}

// serveBound is how long waiters are waited for.
const serveBound = 45 * time.Second

// comeApart is the time between two waiters' coming, so that there is an order:
// long enough for a request to reach the server, but for very many.
func comeApart(n int) time.Duration {
	if n <= 1000 {
		return 2 * time.Millisecond
	}
	return 50 * time.Microsecond
}

// furthest returns by how many places the most overtaken of the waiters, which
// came in the order 0, 1, 2, was served too late.
func furthest(served []int) int {
	worst := 0
	for place, came := range served {
		worst = max(worst, place-came)
	}
	return worst
}
