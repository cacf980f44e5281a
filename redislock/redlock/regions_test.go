package redlock

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// Five clients, each near to one of the servers and far from the others, want free names at the same moments. In a first round
// each takes its own server. A pause that is short beside a round would have them split again and again, until none has the name:
// so it was for 4 names on average.
func TestRegions(t *testing.T) {
	t.Parallel()
	g := five(t)
	var clients [5]*Locker
	for i := range clients {
		l, via := proxied(t, g, "&request_timeout=10s")
		for k, p := range via {
			p.Delay(time.Millisecond, 0)
			if k != i {
				p.Delay(40*time.Millisecond, 0)
			}
		}
		clients[i] = l
	}
	const names, few = 50, 1
	var nobody atomic.Int32
	var all sync.WaitGroup
	for n := range names {
		all.Go(func() {
			var both sync.WaitGroup
			var got atomic.Int32
			for _, l := range clients {
				both.Go(func() {
					held, err := l.TryLock(t.Context(), fmt.Sprint("x", n))
					if err == nil {
						got.Add(1)
						testkit.Should(t, held.Unlock(t.Context()))
					} else if !errors.Is(err, distlock.ErrHeld) {
						t.Error(err)
					}
				})
			}
			both.Wait()
			if got.Load() == 0 {
				nobody.Add(1)
			}
		})
	}
	all.Wait()
	if n := nobody.Load(); n > few {
		t.Errorf("nobody got %d of %d names, want %d at the most", n, names, few)
	}
}
