package redislock

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// The limit of the benchmarks below: what anybody sends who locks by hand.
func BenchmarkBareCommands(b *testing.B) {
	c := client(b, server(b).URL())
	key := freshPrefix()
	del := redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := c.SetNX(b.Context(), key, "owner", long).Result(); err != nil || !ok {
			b.Fatal(ok, err)
		}
		if err := del.Run(b.Context(), c, []string{key}, "owner").Err(); err != nil {
			b.Fatal(err)
		}
	}
}

// The driver alone, without the portable half.
func BenchmarkTryRelease(b *testing.B) {
	d := driverOn(b, client(b, server(b).URL()), freshPrefix())
	b.ReportAllocs()
	for b.Loop() {
		a := d.bid("x", long)
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
		d.RenewBatch(b.Context(), batch)
		if batch[0].Err != nil {
			b.Fatal(batch[0].Err)
		}
	}
}
