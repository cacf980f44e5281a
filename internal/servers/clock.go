package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// errNoClock is what Jump returns for a server that shares the clock of the machine.
var errNoClock = errors.New("servers: this server's clock cannot be moved: start it with StartClocked")

// StartClocked is [Start] for a local process with a wall clock that [Server.Jump] can move: Redis, MySQL or Postgres, under
// libfaketime. Reading the clock takes it longer, so nothing is to be measured on it. ZooKeeper and etcd end leases by
// a monotonic clock. No jump moves that. The error is [ErrUnavailable] where the server or libfaketime is not
// installed.
func StartClocked(ctx context.Context, kind Kind) (*Server, error) {
	if kind == ZooKeeper || kind == Etcd {
		return nil, fmt.Errorf("servers: a %s server has no clock that could be moved", kind)
	}
	r := recipes[kind]
	local := r.local
	r.local = func(ctx context.Context, at site) (launch, error) {
		run, err := local(ctx, at)
		if err != nil {
			return launch{}, err
		}
		return run, run.fakeClock(at.dir)
	}
	sweepOnce.Do(func() { sweep(ctx) })
	s, err := r.startLocal(ctx)
	if err != nil {
		return nil, startError(ctx, kind, nil, err)
	}
	return s, nil
}

// fakeClock gives a server the clock that [Server.Jump] moves.
func (l *launch) fakeClock(dir string) error {
	lib, ok := findFaketime()
	if !ok {
		return unavailable{"libfaketime is not installed"}
	}
	l.clock = filepath.Join(dir, "clock")
	l.env = append(l.env,
		// Redis is built with jemalloc. libfaketime allocates when it is called first, and jemalloc asks for the
		// time when it allocates first: each would wait for the other. This allocator, glibc's own, asks for no
		// time.
		"LD_PRELOAD=libc_malloc_debug.so.0:"+lib,
		"FAKETIME_TIMESTAMP_FILE="+l.clock,
		"FAKETIME_NO_CACHE=1", // a jump is seen by the next look at the clock
		// Waiting goes by the monotonic clock; what jumps is the time of day. Both spellings are in use.
		"FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1",
	)
	return setClock(l.clock, 0)
}

// Jump moves the wall clock of a server of [StartClocked], or of a [Setup] with Clocks, by d, at once. d may be
// negative. Restarts keep the jump.
func (s *Server) Jump(_ context.Context, d time.Duration) error {
	p := s.local()
	if p == nil || p.launch.clock == "" {
		return errNoClock
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := setClock(p.launch.clock, s.ahead+d); err != nil {
		return fmt.Errorf("servers: jump %s: %w", s.kind, err)
	}
	s.ahead += d
	return nil
}

// setClock is one rename, so that the server never reads half an offset. The server may run as another user.
func setClock(file string, ahead time.Duration) error {
	text := strconv.FormatFloat(ahead.Seconds(), 'f', 6, 64)
	if ahead >= 0 {
		text = "+" + text
	}
	if err := os.WriteFile(file+".new", []byte(text+"\n"), 0o644); err != nil {
		return err
	}
	if err := os.Chmod(file+".new", 0o644); err != nil { // whatever the umask is
		return err
	}
	return os.Rename(file+".new", file)
}

// findFaketime looks where Debian, Fedora and Arch put the library, the variant for programs with threads.
func findFaketime() (string, bool) {
	if runtime.GOOS != "linux" {
		return "", false
	}
	for _, pattern := range []string{"/usr/lib/*/faketime", "/usr/lib64/faketime", "/usr/lib/faketime"} {
		found, _ := filepath.Glob(pattern + "/libfaketimeMT.so.1") // the patterns are well-formed
		if len(found) > 0 {
			return found[0], true
		}
	}
	return "", false
}

// ClockedForTest is [ForTest] with [StartClocked]. Elsewhere than on Linux the test is skipped, whatever DISTLOCK_REQUIRE says.
func ClockedForTest(t testing.TB, kind Kind) *Server {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the clock of a process can be moved on Linux only")
	}
	return forTest(t, kind, StartClocked)
}
