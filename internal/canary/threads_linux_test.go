package canary

import "testing"

// The kernel says of each thread how long it has waited.
func TestThreads(t *testing.T) {
	if all := waits(); len(all) == 0 {
		t.Skip("the kernel does not say how long threads have waited for a processor")
	}
}
