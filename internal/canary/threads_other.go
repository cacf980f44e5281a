//go:build !linux

package canary

import "time"

// waits is not known here.
func waits() map[string]time.Duration { return nil }
