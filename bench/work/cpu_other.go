//go:build !unix

package work

import "time"

// processorTime returns false: it is not measured on this system.
func processorTime() (time.Duration, bool) { return 0, false }
