package redislock

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var deleteIfOwner = redis.NewScript(
	`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

// The limit of the benchmarks below: the commands of a lock written by hand.
func BenchmarkBareCommands(b *testing.B) {
	c := client(b, server(b).URL())
	key := freshPrefix()
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := c.SetNX(b.Context(), key, "owner", long).Result(); err != nil || !ok {
			b.Fatal(ok, err)
		}
		if err := deleteIfOwner.Run(b.Context(), c, []string{key}, "owner").Err(); err != nil {
			b.Fatal(err)
		}
	}
}

// The driver alone, without the engine.
func BenchmarkTryRelease(b *testing.B) {
	d := driverOn(b, client(b, server(b).URL()), freshPrefix())
	b.ReportAllocs()
	for b.Loop() {
		a := d.claim("x", long)
		if _, err := a.Try(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := a.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLockUnlock(b *testing.B) {
	l := lockerOn(b, client(b, server(b).URL()), &Options{Prefix: freshPrefix()})
	b.ReportAllocs()
	for b.Loop() {
		lock, err := l.Lock(b.Context(), "x")
		if err != nil {
			b.Fatal(err)
		}
		if err := lock.Unlock(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRenew500(b *testing.B) {
	d := driverOn(b, client(b, server(b).URL()), freshPrefix())
	batch := renewals(b, d, 500)
	b.ReportAllocs()
	for b.Loop() {
		d.Renew(b.Context(), batch)
		if batch[0].Err != nil {
			b.Fatal(batch[0].Err)
		}
	}
}

// Many goroutines of one Locker, each with a name of its own: against the bare
// commands in the same number.
func BenchmarkParallel(b *testing.B) {
	const callers = 64
	parallel := func(b *testing.B, each func(i int) error) {
		b.ReportAllocs()
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for range b.N / callers {
					if err := each(i); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	b.Run("bare", func(b *testing.B) {
		c, prefix := client(b, server(b).URL()), freshPrefix()
		parallel(b, func(i int) error {
			key := fmt.Sprint(prefix, i)
			if err := c.SetNX(b.Context(), key, "owner", long).Err(); err != nil {
				return err
			}
			return deleteIfOwner.Run(b.Context(), c, []string{key}, "owner").Err()
		})
	})
	b.Run("locks", func(b *testing.B) {
		l := lockerOn(b, client(b, server(b).URL()), &Options{Prefix: freshPrefix()})
		parallel(b, func(i int) error {
			lock, err := l.Lock(b.Context(), fmt.Sprint("x", i))
			if err != nil {
				return err
			}
			return lock.Unlock(b.Context())
		})
	})
}

// Many processes hold one name, one after the other. Jain's index is 1 if all get it equally
// often, and 1/clients if one gets it always.
func BenchmarkHotName(b *testing.B) {
	for _, clients := range []int{2, 16, 64} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			prefix := freshPrefix()
			lockers := make([]*Locker, clients)
			for i := range lockers {
				lockers[i] = lockerOn(b, client(b, server(b).URL()), &Options{Prefix: prefix})
			}
			holds := make([]float64, clients)
			left := make(chan struct{}, b.N)
			for range b.N {
				left <- struct{}{}
			}
			close(left)
			b.ResetTimer()
			var all sync.WaitGroup
			for i, l := range lockers {
				all.Go(func() {
					for range left {
						lock, err := l.Lock(b.Context(), "x")
						if err == nil {
							holds[i]++
							err = lock.Unlock(b.Context())
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			b.StopTimer()
			var sum, squares float64
			for _, n := range holds {
				sum += n
				squares += n * n
			}
			b.ReportMetric(sum*sum/squares/float64(clients), "Jain")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "locks/s")
		})
	}
}

// The goroutines of one process hold one name, one after the other.
func BenchmarkHotNameInOneProcess(b *testing.B) {
	l := lockerOn(b, client(b, server(b).URL()), &Options{Prefix: freshPrefix()})
	left := make(chan struct{}, b.N)
	for range b.N {
		left <- struct{}{}
	}
	close(left)
	b.ResetTimer()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range left {
				lock, err := l.Lock(b.Context(), "x")
				if err == nil {
					err = lock.Unlock(b.Context())
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "locks/s")
}

// From the call of Unlock to the return of the Lock that has waited for a random
// time, in another process or in the same one.
func BenchmarkHandOff(b *testing.B) {
	prefix := freshPrefix()
	from := lockerOn(b, client(b, server(b).URL()), &Options{Prefix: prefix})
	other := lockerOn(b, client(b, server(b).URL()), &Options{Prefix: prefix})
	b.Run("other", func(b *testing.B) { handOff(b, from, other) })
	b.Run("same", func(b *testing.B) { handOff(b, from, from) })
}

func handOff(b *testing.B, from, to *Locker) {
	took := make([]time.Duration, 0, b.N)
	for range b.N {
		lock, err := from.Lock(b.Context(), "x")
		if err != nil {
			b.Fatal(err)
		}
		came := make(chan time.Time)
		go func() {
			lock, err := to.Lock(b.Context(), "x")
			came <- time.Now()
			if err == nil {
				err = lock.Unlock(b.Context())
			}
			if err != nil {
				b.Error(err)
			}
			close(came)
		}()
		time.Sleep(20*time.Millisecond + rand.N(20*time.Millisecond))
		unlocked := time.Now()
		if err := lock.Unlock(b.Context()); err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-came).Sub(unlocked))
		<-came
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
