package canary

import (
	"os"
	"testing"
)

// Where the kernel says for how long threads have waited, it is understood, of each of them.
func TestThreads(t *testing.T) {
	_, err := os.Stat("/proc/self/schedstat")
	tasks, _ := os.ReadDir("/proc/self/task")
	look := make(threads)
	if n := len(look.waits()); err == nil && n == 0 || n > 0 && len(tasks) == 0 {
		t.Errorf("waits of %d threads are known, of %d that are there (%v)", n, len(tasks), err)
	}
}
