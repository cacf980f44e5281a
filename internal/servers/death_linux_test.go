package servers

import (
	"os/exec"
	"testing"
)

// TestProcessesAreSwept: what a killed run has left goes on, or stands still, in its folder.
func TestProcessesAreSwept(t *testing.T) {
	f, err := newFolder()
	must(t, err)
	left := exec.Command("sleep", "1000")
	left.Dir = f.path
	must(t, left.Start())
	must(t, left.Process.Signal(sigPause))
	must(t, f.lock.Close()) // as when its process was killed
	wantSwept(t, f.path)
	if err := left.Wait(); err == nil || left.ProcessState.Success() {
		t.Errorf("it has ended with %v", left.ProcessState)
	}
}
