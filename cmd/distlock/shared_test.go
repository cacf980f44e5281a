//go:build unix

package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/distlock-go/distlock/internal/servers"
)

// shared has the servers of the tests that do them no harm: one of each kind for all of them, until
// the last test is over.
var shared struct {
	sync.Mutex
	servers map[servers.Kind]*servers.Server
	closing []func()
	failed  bool // to close one
}

// sharedServer returns a server that other tests use as well, with names of their own. A test that
// stops it, or looks at all that is on it, takes one of its own, by [servers.ForTest].
func sharedServer(t *testing.T, kind servers.Kind) *servers.Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	s := shared.servers[kind]
	if s == nil {
		s = servers.ForTest(keeping{t}, kind) // skips or fails t, where there is none
		if shared.servers == nil {
			shared.servers = make(map[servers.Kind]*servers.Server)
		}
		shared.servers[kind] = s
	}
	return s
}

// sharedURL is what the tests that need no more of a server give to the command.
func sharedURL(t *testing.T, kind servers.Kind) string {
	t.Helper()
	return backendURL(sharedServer(t, kind))
}

// keeping is a test that leaves its clean-ups to the end of all.
type keeping struct{ *testing.T }

func (keeping) Cleanup(f func()) { shared.closing = append(shared.closing, f) }

// Error is for those clean-ups: the test that they come from has long ended.
func (keeping) Error(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	shared.failed = true
}

// all is the tests of this package, and what comes before and after them.
type all struct{ *testing.M }

// atOnce has a program that was built with -race end when it is over: it would sleep for a second
// first, for races that other goroutines of it are about to report.
const atOnce = "atexit_sleep_ms=0"

// Run implements testscript.TestingM.
func (a all) Run() int {
	flag.Parse()
	if err := os.Setenv("GORACE", atOnce+" "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
	// They wait, for leases and other processes, and need few processors.
	if n, err := strconv.Atoi(flag.Lookup("test.parallel").Value.String()); err == nil && n < 8 {
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	status := a.M.Run()
	for _, f := range shared.closing {
		f()
	}
	if status == 0 && shared.failed {
		status = 1
	}
	return status
}
