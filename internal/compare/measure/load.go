package measure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/internal/compare/report"
)

// maxBacklog is how many calls may be under way before a backend counts as unable to
// keep up with the rate.
const maxBacklog = 10_000

// arrivals begins calls to Lock at a rate, evenly, each on a random one of the names,
// through the clients in turn. A call begins whether or not earlier ones have ended, as
// customers do (an open loop). Its latency counts from the instant at which it should
// have begun. Otherwise a stalled store would keep calls from beginning, and so from
// being measured: what Gil Tene named coordinated omission.
func arrivals(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error) {
	ls, err := b.clients(ctx, p.Clients)
	if err != nil {
		return nil, err
	}
	record := b.record("arrivals")
	var took durations
	var underWay atomic.Int64
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	begin := time.Now()
	n := max(int(p.Rate*p.Duration.Seconds()), 1)
	for i := range n {
		intended := begin.Add(time.Duration(float64(i) / p.Rate * float64(time.Second)))
		sleep(ctx, time.Until(intended))
		if ctx.Err() != nil || failed.Load() != nil {
			break
		}
		if underWay.Add(1) > maxBacklog {
			err := fmt.Errorf("it cannot keep up with %v calls a second: %d are under way", p.Rate, maxBacklog)
			failed.Store(&err)
			break
		}
		running.Go(func() {
			defer underWay.Add(-1)
			name := fmt.Sprintf("%sarrivals/%d", b.run, rand.N(p.Names))
			lock, err := ls[i%len(ls)].Lock(ctx, name, distlock.TTL(p.TTL))
			if err == nil {
				latency := time.Since(intended)
				took.add(latency)
				record(latency)
				sleep(ctx, p.Hold)
				err = lock.Unlock(ctx)
			}
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return map[report.Figure]float64{
		report.ArrivalRate: float64(took.count) / time.Since(begin).Seconds(),
		report.Arrival50:   ms(took.percentile(50)),
		report.Arrival99:   ms(took.percentile(99)),
	}, ctx.Err()
}

// try has all clients try all names at the same moment, as the hosts of a schedule do.
// For each name one of them must get it, and no more than one can. It is held, and the
// next moment comes when all have been freed.
func try(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error) {
	ls, err := b.clients(ctx, p.Clients)
	if err != nil {
		return nil, err
	}
	var won, busy durations
	nobody, names := 0, 0
	for end := time.Now().Add(p.Duration); names == 0 || time.Now().Before(end); {
		locks := make([]distlock.Lock, len(ls)*p.Names)
		start := time.Now()
		err := each(len(locks), func(i int) error {
			called := time.Now()
			lock, err := ls[i%len(ls)].TryLock(ctx, fmt.Sprintf("%stry/%d", b.run, i/len(ls)), distlock.TTL(p.TTL))
			switch {
			case err == nil:
				won.add(time.Since(called))
				locks[i] = lock
			case errors.Is(err, distlock.ErrHeld):
				busy.add(time.Since(called))
			default:
				return err
			}
			return nil
		})
		if err == nil {
			sleep(ctx, p.Hold-time.Since(start))
		}
		none, two := winners(locks, len(ls))
		err = errors.Join(err, each(len(locks), func(i int) error {
			if locks[i] == nil {
				return nil
			}
			return locks[i].Unlock(ctx)
		}))
		if err == nil && two > 0 {
			err = fmt.Errorf("%d names had two holders at the same time", two)
		}
		if err != nil {
			return nil, err
		}
		nobody += none
		names += p.Names
	}
	figures := map[report.Figure]float64{report.TryNobody: float64(nobody) / float64(names)}
	for f, took := range map[report.Figure]*durations{report.TryWin50: &won, report.TryBusy50: &busy} {
		if took.count > 0 { // else it would be the fastest of all
			figures[f] = ms(took.percentile(50))
		}
	}
	return figures, ctx.Err()
}

// winners returns how many names nobody holds, and how many are believed to be held by
// more than one. The locks of a name stand side by side.
func winners(locks []distlock.Lock, clients int) (none, two int) {
	for from := 0; from < len(locks); from += clients {
		n := 0
		for _, lock := range locks[from : from+clients] {
			if lock != nil && lock.Err() == nil {
				n++
			}
		}
		switch {
		case n == 0:
			none++
		case n > 1:
			two++
		}
	}
	return none, two
}

func failOverTakes(p report.Params) time.Duration { return 2 * p.TTL } // ZooKeeper: a session a little longer than that

// failOver cuts off the client that holds a name: its packets vanish and no connection
// is closed. It measures until a waiting client holds the name. That is the cost of a
// leader that dies with its host.
func failOver(ctx context.Context, b *bench, p report.Params) (map[report.Figure]float64, error) {
	proxy, err := netfault.NewTCPProxy(b.target.Addr, rand.Uint64())
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	leader, err := b.target.OpenVia(ctx, proxy.Addr())
	if err != nil {
		return nil, err
	}
	defer leader.Close()
	defer proxy.Heal() // or Close would wait for an answer
	ls, err := b.clients(ctx, 1)
	if err != nil {
		return nil, err
	}
	name := b.run + "failover"
	if _, err := leader.Lock(ctx, name, distlock.TTL(p.TTL)); err != nil {
		return nil, err
	}
	type outcome struct {
		lock distlock.Lock
		at   time.Time
		err  error
	}
	got := make(chan outcome, 1)
	go func() {
		lock, err := ls[0].Lock(ctx, name, distlock.TTL(p.TTL))
		got <- outcome{lock, time.Now(), err}
	}()
	sleep(ctx, 100*time.Millisecond+rand.N(p.TTL/3)) // at no fixed distance from a renewal
	cut := time.Now()
	proxy.Drop(true, true)
	o := <-got
	if o.err != nil {
		return nil, o.err
	}
	took := o.at.Sub(cut)
	return map[report.Figure]float64{
		report.FailOver:    ms(took),
		report.FailOverTTL: float64(took) / float64(p.TTL),
	}, o.lock.Unlock(ctx)
}
