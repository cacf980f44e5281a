package work

import (
	"time"

	"golang.org/x/sys/unix"
)

// timeOf returns what other processes have used of the processors, and whether that
// is known of all of them; of none, it is not. It reads their CPU clocks, which are
// exact, where /proc/PID/stat has hundredths of a second.
func timeOf(pids []int) (time.Duration, bool) {
	const ofProcess, scheduled = 0, 2 // how clock_getcpuclockid(3) makes the number of the clock
	var total time.Duration
	for _, pid := range pids {
		var t unix.Timespec
		if err := unix.ClockGettime(int32(^pid<<3|ofProcess|scheduled), &t); err != nil {
			return 0, false
		}
		total += time.Duration(t.Nano())
	}
	return total, len(pids) > 0
}
