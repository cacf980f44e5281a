package measure

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/distlock-go/distlock/internal/procstat"
)

// CPUTime returns what processes have used of the processors, and whether it is known
// of all of them; it is false for none. It reads their CPU clocks. Those are exact;
// /proc/PID/stat has hundredths of a second.
func CPUTime(pids []int) (time.Duration, bool) {
	var total time.Duration
	for _, pid := range pids {
		used, ok := clockOf(pid)
		if !ok {
			return 0, false
		}
		total += used
	}
	return total, len(pids) > 0
}

func clockOf(pid int) (time.Duration, bool) {
	const ofProcess, scheduled = 0, 2 // how clock_getcpuclockid(3) makes the number of the clock
	var t unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|ofProcess|scheduled), &t)
	return time.Duration(t.Nano()), err == nil
}

// ServerTime is CPUTime of the processes of a server together with their children.
// Postgres starts a child for each connection. Children that have ended count, too, in
// hundredths of a second.
func ServerTime(pids []int) (time.Duration, bool) {
	total, ok := CPUTime(pids)
	if !ok {
		return 0, false
	}
	for _, p := range procstat.All() {
		if slices.Contains(pids, p.PID) {
			total += p.Ended
		}
		if slices.Contains(pids, p.Parent) {
			used, _ := clockOf(p.PID) // nothing if it has just ended
			total += used
		}
	}
	return total, true
}
