package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
)

// BenchmarkHot has many processes contend for one name without a pause, and reports how they
// share it. It reports Jain's index (1 if all get the same), the longest wait, and how many
// others were served, at the most, between two holds of the same process. An op is a hold. The
// first holds count as well, though each process opens connections for them.
func BenchmarkHot(b *testing.B) {
	for _, n := range []int{2, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var tries atomic.Int64
			observer := &distlock.Observer{Acquired: func(a distlock.Acquired) { tries.Add(int64(a.Tries)) }}
			benchmarkHot(b, openLockers(b, n, Options{Options: distlock.Options{Observer: observer}}), &tries)
		})
	}
}

func benchmarkHot(b *testing.B, lockers []*Locker, tries *atomic.Int64) {
	const least = 50 // turns each, for the index says nothing about fewer
	n := max(b.N, least*len(lockers))
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var mu sync.Mutex
	var order []int // who had the name
	waits := make([]time.Duration, len(lockers))
	var wg sync.WaitGroup
	b.ResetTimer()
	began := time.Now()
	for i, l := range lockers {
		wg.Go(func() {
			for {
				start := time.Now()
				lock, err := l.Lock(ctx, "n")
				if err != nil {
					if ctx.Err() == nil {
						b.Error(err)
					}
					return
				}
				waits[i] = max(waits[i], time.Since(start))
				mu.Lock()
				if order = append(order, i); len(order) == n {
					cancel()
				}
				mu.Unlock()
				if err := lock.Unlock(context.WithoutCancel(ctx)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(len(order))/time.Since(began).Seconds(), "turns/s")
	b.ReportMetric(float64(tries.Load())/float64(len(order)), "tries/turn")
	b.ReportMetric(jain(order, len(lockers)), "jain")
	b.ReportMetric(float64(passedOver(order, len(lockers))), "passed-over")
	b.ReportMetric(float64(slices.Max(waits).Milliseconds()), "worst-ms")
}

// jain returns Jain's index of the holds that n contenders had: 1/n to 1.
func jain(order []int, n int) float64 {
	turns := make([]float64, n)
	for _, who := range order {
		turns[who]++
	}
	total, squares := 0.0, 0.0
	for _, k := range turns {
		total += k
		squares += k * k
	}
	return total * total / (float64(n) * squares)
}

// passedOver returns how many holds of others lay between two of the same contender, at the most.
func passedOver(order []int, n int) (most int) {
	last := make([]int, n)
	for at, who := range order {
		if last[who] > 0 {
			most = max(most, at-last[who])
		}
		last[who] = at + 1
	}
	return most
}

// BenchmarkLockUnlock takes and frees one name, in alternation with the two writes that
// any lock in a table must make, and reports its speed as a part of theirs. B/op and
// allocs/op are of both.
func BenchmarkLockUnlock(b *testing.B) {
	c := config(b, server(b).URL())
	c.InterpolateParams = true
	db, table := poolOf(b, c), freshTable(b)
	ctx, cancel := context.WithCancel(b.Context()) // as callers have, which costs the client library something
	defer cancel()
	exec := func(statement string) {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			b.Fatal(err)
		}
	}
	exec("CREATE TABLE " + table + " (name VARBINARY(255) PRIMARY KEY, owner VARBINARY(64) NULL, token BIGINT NOT NULL) ENGINE=InnoDB")
	l := openLockers(b, 1, Options{})[0]
	var bare, own []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		exec("INSERT INTO " + table + " VALUES ('n', 'owner', 1) ON DUPLICATE KEY UPDATE owner = 'owner', token = token + 1")
		exec("UPDATE " + table + " SET owner = NULL WHERE name = 'n' AND owner = 'owner'")
		middle := time.Now()
		lock, err := l.Lock(ctx, "n")
		if err != nil {
			b.Fatal(err)
		}
		if err := lock.Unlock(ctx); err != nil {
			b.Fatal(err)
		}
		bare, own = append(bare, middle.Sub(start)), append(own, time.Since(middle))
	}
	b.ReportMetric(float64(median(own).Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(median(bare))/float64(median(own)), "of-bare")
}

// BenchmarkMany has 64 goroutines take and free a name each, in alternation with an INSERT
// and a DELETE of a row each, on as many connections.
func BenchmarkMany(b *testing.B) {
	const n, rounds = 64, 8
	table := freshTable(b)
	db := pool(b, nil)
	db.SetMaxOpenConns(defaultConns)
	if _, err := db.Exec("CREATE TABLE " + table + " (name VARBINARY(255) PRIMARY KEY, owner VARBINARY(64) NULL) ENGINE=InnoDB"); err != nil {
		b.Fatal(err)
	}
	insert, err := db.Prepare("INSERT INTO " + table + " VALUES (?, 'owner')")
	if err != nil {
		b.Fatal(err)
	}
	remove, err := db.Prepare("DELETE FROM " + table + " WHERE name = ? AND owner = 'owner'")
	if err != nil {
		b.Fatal(err)
	}
	l := openLockers(b, 1, Options{})[0]
	all := func(pair func(name string) error) time.Duration {
		start := time.Now()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				for range rounds {
					if err := pair(fmt.Sprint("name", i)); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	var bare, own []time.Duration
	for b.Loop() {
		bare = append(bare, all(func(name string) error {
			if _, err := insert.Exec(name); err != nil {
				return err
			}
			_, err := remove.Exec(name)
			return err
		}))
		own = append(own, all(func(name string) error {
			lock, err := l.Lock(context.Background(), name)
			if err != nil {
				return err
			}
			return lock.Unlock(context.Background())
		}))
	}
	b.ReportMetric(n*rounds/median(own).Seconds(), "pairs/s")
	b.ReportMetric(float64(median(bare))/float64(median(own)), "of-bare")
}

// BenchmarkHandOff measures from the call of Unlock to the return of a Lock in another process.
// That Lock has waited for 20 to 120 ms. The benchmark alternates with the same on a named lock
// alone, and reports how many times as long it takes. It uses a name contended all the time
// (warm), and a name without a waiter before (cold).
func BenchmarkHandOff(b *testing.B) {
	lockers := openLockers(b, 2, Options{})
	var conns [2]*sql.Conn
	for i := range conns {
		conn, err := pool(b, nil).Conn(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	var named, warm, cold []time.Duration
	for i := 0; b.Loop(); i++ {
		lock := func(who int, name string) (unlock func()) {
			l, err := lockers[who].Lock(context.Background(), name)
			if err != nil {
				b.Error(err)
				return func() {}
			}
			return func() { _ = l.Unlock(context.Background()) }
		}
		getLock := func(who int, name string) (unlock func()) {
			var got int
			if err := conns[who].QueryRowContext(context.Background(), "SELECT GET_LOCK(?, 60)", name).Scan(&got); err != nil {
				b.Error(err)
			}
			return func() { _, _ = conns[who].ExecContext(context.Background(), "DO RELEASE_LOCK(?)", name) }
		}
		named = append(named, timeHandOff(getLock, i%2, "bench"+randomText()))
		warm = append(warm, timeHandOff(lock, i%2, "warm"))
		cold = append(cold, timeHandOff(lock, i%2, fmt.Sprint("cold", i)))
	}
	for name, all := range map[string][]time.Duration{"warm": warm, "cold": cold} {
		b.ReportMetric(float64(median(all).Microseconds()), name+"-p50-us")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), name+"-p99-us")
	}
	b.ReportMetric(float64(median(warm))/float64(median(named)), "warm/named-lock")
	b.ReportMetric(float64(median(cold))/float64(median(named)), "cold/named-lock")
}

func timeHandOff(lock func(who int, name string) (unlock func()), holder int, name string) time.Duration {
	unlock := lock(holder, name)
	came := make(chan time.Time)
	var unlockNext func()
	go func() {
		unlockNext = lock(1-holder, name)
		came <- time.Now()
	}()
	// A fixed wait would lock onto the phase of the polls before the named lock is taken.
	time.Sleep(20*time.Millisecond + rand.N(100*time.Millisecond))
	start := time.Now()
	unlock()
	took := (<-came).Sub(start)
	unlockNext()
	return took
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
