package measure

import (
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime returns what processes have used of the processors, and whether it is known
// of all of them; it is false for none. It reads their CPU clocks. Those are exact;
// /proc/PID/stat has hundredths of a second.
func CPUTime(pids []int) (time.Duration, bool) {
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
