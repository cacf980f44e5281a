package distlock_test

import (
	"testing"

	"github.com/distlock-go/distlock/memlock"
)

// BenchmarkLockUnlock is the portable half alone: the reference driver costs next
// to nothing. Run it with -benchmem.
func BenchmarkLockUnlock(b *testing.B) {
	l, err := memlock.New(memlock.NewStore(nil), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	b.ReportAllocs()
	for b.Loop() {
		lock, err := l.Lock(bg, "x")
		if err != nil {
			b.Fatal(err)
		}
		if err := lock.Unlock(bg); err != nil {
			b.Fatal(err)
		}
	}
}
