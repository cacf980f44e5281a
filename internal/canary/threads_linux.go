package canary

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// waits returns for how long each thread of this process has waited for a processor since its start. That of a wait under
// way is not in it. Without /proc there are none.
func waits() map[string]time.Duration {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil
	}
	all := make(map[string]time.Duration, len(tasks))
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/self/task/" + task.Name() + "/schedstat") // time on a processor, waiting for one, turns
		if err != nil {
			continue // it has ended
		}
		if fields := bytes.Fields(text); len(fields) == 3 {
			if n, err := strconv.ParseInt(string(fields[1]), 10, 64); err == nil {
				all[task.Name()] = time.Duration(n)
			}
		}
	}
	return all
}
