//go:build !linux

package measure

import "time"

// CPUTime returns false: it is measured on Linux only.
func CPUTime([]int) (time.Duration, bool) { return 0, false }

// ServerTime returns false likewise.
func ServerTime([]int) (time.Duration, bool) { return 0, false }
