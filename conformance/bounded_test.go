package conformance

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// hanging is a harness with clients that never return from Lock if the name is held.
type hanging struct{ stub }

type hangingLocker struct{ distlock.Locker }

func (h hanging) ForCheck(*C) Harness { return hanging{stub{memlock.NewStore(nil)}} }

func (h hanging) Open(context.Context, *C) (distlock.Locker, error) {
	l, err := memlock.New(h.store, nil)
	return hangingLocker{l}, err
}

func (l hangingLocker) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	lock, err := l.TryLock(ctx, name, opts...)
	if err != nil {
		select {}
	}
	return lock, err
}

// TestCallThatNeverReturns: the check of a driver that hangs its callers for ever ends
// soon, and names the call; in virtual time, where its goroutine cannot be left
// behind, as well.
func TestCallThatNeverReturns(t *testing.T) {
	prompt := func(k Check) bool { return k.ID == "cancel/race-with-grant" || k.ID == "wait/deadline" }
	var real Report
	testkit.Within(t, 20*time.Second, func() { // the watchdog takes more than a minute
		real = Verify(t.Context(), hanging{stub{memlock.NewStore(nil)}}, &Options{Filter: prompt, Artifacts: t.TempDir()})
	})
	virtual := Collect(t, hanging{}, &Options{Filter: prompt, VirtualTime: true, Artifacts: t.TempDir()})
	for _, r := range append(real.Results, virtual.Results...) {
		if r.Status != Failed || r.Clause != "A4" || !strings.Contains(r.Reason, "has not returned") {
			t.Errorf("got %s", r.Text())
		}
	}
}
