//go:build unix

package conformance

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// deaf has child processes that never answer, and interrupts the suite soon after it
// has made one.
type deaf struct {
	stub
	interrupt func()
}

func (h deaf) ForCheck(*C) Harness { return deaf{stub{memlock.NewStore(nil)}, h.interrupt} }

func (h deaf) Child() *exec.Cmd {
	time.AfterFunc(500*time.Millisecond, h.interrupt)
	return exec.Command("sleep", "1000")
}

func (h deaf) Caps() Caps {
	caps := h.stub.Caps()
	caps.Child = Yes
	return caps
}

// An interrupted suite does not wait for the answer of a child process.
func TestInterruptedBesideChild(t *testing.T) {
	testkit.Within(t, patience, func() { // the answer itself is waited for for twice that: half a minute
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := Verify(ctx, deaf{interrupt: cancel}, &Options{Filter: func(k Check) bool { return k.ID == "core/cross-process" }, Artifacts: t.TempDir()})
		if r.Count(Inconclusive) != 1 {
			t.Error(r.Summary())
		}
	})
}
