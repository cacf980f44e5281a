package main

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/distlock-go/distlock/internal/procstat"
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

// upToMake returns the processes from the parent of this one up to make, or none if it was not started by that, or the system
// does not tell.
func upToMake() (chain []int) {
	for pid := os.Getppid(); pid > 1 && len(chain) < 4; {
		p := procstat.Read(pid)
		chain = append(chain, pid)
		if p.Name == "make" || p.Name == "gmake" {
			return chain
		}
		pid = p.Parent
	}
	return nil
}
