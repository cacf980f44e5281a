package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// stopWithMake calls stop when the make that has started this program is gone. Only Ctrl-C comes here by itself: a make that
// was killed tells nobody, and the go command in between passes no signal on.
func stopWithMake(ctx context.Context, stop func()) {
	started := upToMake()
	for len(started) > 0 && ctx.Err() == nil {
		time.Sleep(time.Second)
		if !slices.Equal(upToMake(), started) {
			stop()
			return
		}
	}
}

// upToMake returns the processes from the parent of this one up to make, or none if it was not started by that.
func upToMake() (chain []int) {
	for pid := os.Getppid(); pid > 1 && len(chain) < 4; {
		name, parent := process(pid)
		chain = append(chain, pid)
		if name == "make" || name == "gmake" {
			return chain
		}
		pid = parent
	}
	return nil
}

// process returns the name of a process, and its parent: 0 if it is gone.
func process(pid int) (name string, parent int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // "12 (make) S 11 ...", where a name may have brackets
	before, after, _ := strings.Cut(string(text), " (")
	end := strings.LastIndex(after, ")")
	if before == "" || end < 0 {
		return "", 0
	}
	var state string
	_, _ = fmt.Sscan(after[end+1:], &state, &parent)
	return after[:end], parent
}
