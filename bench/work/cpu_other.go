//go:build !unix

package work

import "time"

// processorTime returns 0: it is not measured on this system.
func processorTime() time.Duration { return 0 }
