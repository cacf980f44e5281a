package distlock_test

import (
	"fmt"
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

// BenchmarkHeld is what a lock costs while it is held and renewed: see B/op.
func BenchmarkHeld(b *testing.B) {
	l, err := memlock.New(memlock.NewStore(nil), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	b.ReportAllocs()
	for i := range b.N {
		if _, err := l.Lock(bg, fmt.Sprint(i)); err != nil { // held until Close
			b.Fatal(err)
		}
	}
}
