//go:build unix

package conformance

import (
	"context"
	"os/exec"
	"testing"
	"time"

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
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	start := time.Now()
	r := Verify(ctx, deaf{interrupt: cancel}, &Options{Filter: func(k Check) bool { return k.ID == "core/cross-process" }, Artifacts: t.TempDir()})
	// The answer itself is waited for for twice the patience: half a minute.
	if took := time.Since(start); took > patience || r.Count(Inconclusive) != 1 {
		t.Errorf("it took %v: %s", took, r.Summary())
	}
}
