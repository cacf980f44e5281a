package measure

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, stat := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		parent, ended := readStat(stat)
		if err == nil && slices.Contains(pids, pid) {
			total += ended
		}
		if err == nil && slices.Contains(pids, parent) {
			used, _ := clockOf(pid) // nothing if it has just ended
			total += used
		}
	}
	return total, true
}

// readStat returns the parent of a process, 0 if it is gone, and what those of its
// children have used that have ended.
func readStat(stat string) (parent int, ended time.Duration) {
	text, err := os.ReadFile(stat)
	// The name of the program is in brackets, and may contain some.
	at := bytes.LastIndexByte(text, ')')
	if err != nil || at < 0 {
		return 0, 0
	}
	const ppid, cutime, cstime = 1, 13, 14 // the places behind the name, see proc_pid_stat(5)
	fields := strings.Fields(string(text[at+1:]))
	if len(fields) <= cstime {
		return 0, 0
	}
	parent, _ = strconv.Atoi(fields[ppid])
	for _, field := range []string{fields[cutime], fields[cstime]} {
		ticks, _ := strconv.Atoi(field)
		ended += time.Duration(ticks) * time.Second / 100 // USER_HZ is 100 on every architecture of Go
	}
	return parent, ended
}
