//go:build unix

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
)

// hold returns a lock of ttl, and the locker that can break it.
func hold(t *testing.T, ttl time.Duration) (distlock.Locker, distlock.Lock) {
	t.Helper()
	l, err := memlock.New(memlock.NewStore(nil), &memlock.Options{Options: distlock.Options{TTL: ttl}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	lock, err := l.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	return l, lock
}

// A process may sleep between the grant and the start of the program.
func TestNothingRunsWithoutTheLock(t *testing.T) {
	l, lock := hold(t, time.Second)
	if err := distlock.Break(t.Context(), l, "job", 0); err != nil {
		t.Fatal(err)
	}
	<-lock.Done()
	file := filepath.Join(t.TempDir(), "ran")
	_, err := Run(lock, Command{Args: []string{"touch", file}, Tell: t.Logf})
	if !errors.Is(err, ErrNotStarted) || !errors.Is(err, distlock.ErrLost) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the program has run")
	}
}

// A pipe that nobody reads, or a terminal halted by Ctrl-S, blocks its writer.
func TestMessageThatBlocksDoesNotSaveTheProgram(t *testing.T) {
	l, lock := hold(t, 3*time.Second)
	deaf := make(chan struct{})
	defer close(deaf)
	told := make(chan struct{})
	file := filepath.Join(t.TempDir(), "runs")
	go func() {
		for _, err := os.Stat(file); err != nil; _, err = os.Stat(file) {
			time.Sleep(10 * time.Millisecond)
		}
		_ = distlock.Break(context.Background(), l, "job", 0) // Run does not return without
	}()
	out, err := Run(lock, Command{
		Args: []string{"sh", "-c", `trap "" TERM; touch "$1"; while :; do sleep 0.1; done`, "sh", file},
		Tell: func(string, ...any) {
			close(told)
			<-deaf
		},
	})
	if err != nil || !errors.Is(out.Lost, distlock.ErrLost) || out.Status != 128+9 {
		t.Errorf("got %+v, %v, want status 137", out, err)
	}
	<-told
}

// overslept is a lock as a process finds it that was stopped for longer than the lease.
type overslept struct {
	distlock.Lock
	over atomic.Bool
	done chan struct{}
}

func (o *overslept) Done() <-chan struct{} { return o.done }

func (o *overslept) Err() error {
	if o.over.Load() {
		return distlock.ErrLost
	}
	return nil
}

func (o *overslept) Deadline() time.Time {
	if o.over.Load() {
		return time.Now().Add(-time.Second)
	}
	return time.Now().Add(10 * time.Hour)
}

// Another may hold the lock, so the program does not have its hour.
func TestNoGraceAfterTheLease(t *testing.T) {
	_, lock := hold(t, time.Minute)
	o := &overslept{Lock: lock, done: make(chan struct{})}
	file := filepath.Join(t.TempDir(), "runs")
	go func() {
		for _, err := os.Stat(file); err != nil; _, err = os.Stat(file) {
			time.Sleep(10 * time.Millisecond)
		}
		o.over.Store(true)
		close(o.done)
	}()
	out, err := Run(o, Command{
		Args:  []string{"sh", "-c", `trap "" TERM; touch "$1"; while :; do sleep 0.1; done`, "sh", file},
		Grace: time.Hour,
		Tell:  t.Logf,
	})
	if err != nil || !errors.Is(out.Lost, distlock.ErrLost) || out.Status != 128+9 {
		t.Errorf("got %+v, %v, want status 137", out, err)
	}
}

// sleeper starts a program under a lock that a test can lose.
func sleeper(t *testing.T) (*overslept, *group) {
	t.Helper()
	_, lock := hold(t, time.Minute)
	g, err := start(exec.Command("sleep", "1000"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.restore() })
	return &overslept{Lock: lock, done: make(chan struct{})}, g
}

// A program may run as another user, as with sudo: then the system lets nobody but that user end it. A fake system, because the
// tests may run as root, whom none refuses.
func TestProgramOfAnotherUser(t *testing.T) {
	o, g := sleeper(t)
	g.system = func(int, syscall.Signal) error { return syscall.EPERM }
	signals, told := make(chan os.Signal), make(chan string, 10)
	w := &watch{lock: o, group: g, command: Command{Signals: signals, Tell: func(format string, args ...any) { told <- fmt.Sprintf(format, args...) }}}
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.until(g.done)
		w.told.Wait()
		close(told)
	}()
	signals <- syscall.SIGINT
	const refusal = "the system does not let distlock signal the command"
	if got := <-told; got != refusal {
		t.Errorf("told of a signal: %q", got)
	}
	o.over.Store(true)
	close(o.done)
	for _, want := range []string{"ending the command", refusal + "; it keeps running WITHOUT the lock"} {
		if got := <-told; !strings.HasSuffix(got, want) {
			t.Errorf("told of the loss: %q, want %q", got, want)
		}
	}
	if err := syscall.Kill(-g.pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	for more := range told {
		t.Errorf("told once more: %q", more)
	}
	<-over
}

// Of a group with processes of another user, the system ends the others, and says of the rest that it may not be signalled.
func TestGroupOfTwoUsers(t *testing.T) {
	o, g := sleeper(t)
	g.system = func(pid int, s syscall.Signal) error {
		if s == 0 {
			return syscall.EPERM
		}
		return syscall.Kill(pid, s)
	}
	told := make(chan string, 10)
	w := &watch{lock: o, group: g, command: Command{Tell: func(format string, args ...any) { told <- fmt.Sprintf(format, args...) }}}
	o.over.Store(true)
	close(o.done)
	w.until(g.done)
	w.told.Wait()
	close(told)
	last := ""
	for last = range told {
	}
	if !w.running || !strings.HasSuffix(last, "it keeps running WITHOUT the lock") {
		t.Errorf("running is %t, the last word is %q", w.running, last)
	}
}

// The grace is what was asked for, within the lease.
func TestGraceIsWithinTheLease(t *testing.T) { synctest.Test(t, testGraceIsWithinTheLease) }

func testGraceIsWithinTheLease(t *testing.T) {
	_, lock := hold(t, time.Minute)
	w := &watch{lock: lock, command: Command{Grace: 10 * time.Second}, settle: settle(time.Minute)}
	if got := w.grace(); got != 10*time.Second {
		t.Errorf("%v of grace within the lease", got)
	}
	w.command.Grace = time.Hour
	if got := w.grace(); got >= time.Until(lock.Deadline()) {
		t.Errorf("%v of grace with a lease that ends in %v", got, time.Until(lock.Deadline()))
	}
}

// late is a lock as a process finds it that was stopped, but not for as long as the lease.
type late struct {
	distlock.Lock
	deadline atomic.Pointer[time.Time]
	looks    int    // of [Run] at the deadline until it
	looked   func() // is called
}

func (l *late) Deadline() time.Time {
	if l.looks--; l.looks == 0 {
		l.looked()
	}
	return *l.deadline.Load()
}

func (l *late) renewed(left time.Duration) {
	deadline := time.Now().Add(left)
	l.deadline.Store(&deadline)
}

// TestCatchUp: a renewal that could not be sent in time, because this process was stopped, has a moment before the program is
// told to end.
func TestCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, lock := hold(t, time.Minute)
		l := &late{Lock: lock}
		l.renewed(time.Second)
		w := &watch{lock: l, command: Command{Grace: 5 * time.Second}, settle: maxSettle}
		if got := w.catchUp(-w.untilTerm()); got != 450*time.Millisecond {
			t.Errorf("it has %v of the 900ms that are left", got)
		}
		if got := w.catchUp(-w.untilTerm()); got != 0 {
			t.Errorf("and once more %v", got)
		}
		l.renewed(5 * time.Second)
		if got := w.catchUp(-w.untilTerm()); got != 0 {
			t.Errorf("a program that is told to end on time waits for %v", got)
		}
		l.renewed(-time.Second)
		if got := w.catchUp(-w.untilTerm()); got > 0 {
			t.Errorf("after the lease it has %v", got)
		}
	})
}

// TestRenewedAfterAStop: the program goes on if that renewal succeeds.
func TestRenewedAfterAStop(t *testing.T) {
	_, lock := hold(t, time.Minute)
	l := &late{Lock: lock}
	l.renewed(20 * time.Second)
	file := filepath.Join(t.TempDir(), "renewed")
	// By then the program is started, was found to be late, and was given a moment: that is over.
	l.looked, l.looks = func() {
		l.renewed(time.Hour)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Error(err)
		}
	}, 7
	out, err := Run(l, Command{Args: []string{"sh", "-c", `until [ -e "$1" ]; do sleep 0.01; done`, "sh", file}, Grace: 30 * time.Second, Tell: t.Logf})
	if err != nil || out.Lost != nil || out.Status != 0 || l.looks > 0 {
		t.Errorf("got %+v, %v, and %d looks were left", out, err, l.looks)
	}
}

// TestFirstProcess: in a container, distlock takes note of the end of what its command has left.
func TestFirstProcess(t *testing.T) {
	if os.Getpid() == 1 {
		_, lock := hold(t, time.Minute)
		out, err := Run(lock, Command{Args: []string{"sh", "-c", "(sleep 0.2; true) & exit 7"}, Tell: t.Logf})
		if err != nil || out.Status != 7 {
			t.Errorf("got %+v, %v", out, err)
		}
		for { // until the system says that nobody is left
			if err := syscall.Kill(-1, 0); errors.Is(err, syscall.ESRCH) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	if err := exec.Command("unshare", "--pid", "--fork", "true").Run(); err != nil {
		t.Skipf("this user cannot have processes of its own: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), "unshare", "--pid", "--fork", "--kill-child", os.Args[0], "-test.run", "^TestFirstProcess$", "-test.timeout", "1m").CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// What is told of a loss names the reason, and no time that has passed already.
func TestWordsOfALoss(t *testing.T) { synctest.Test(t, testWordsOfALoss) }

func testWordsOfALoss(t *testing.T) {
	_, lock := hold(t, time.Second)
	w := &watch{lock: lock, command: Command{Trouble: func() error { return errors.New("wrong password") }}}
	if got := w.ending().Error(); !strings.Contains(got, "it ends in ") || !strings.HasSuffix(got, ": wrong password") {
		t.Error(got)
	}
	if err := lock.Unlock(t.Context()); err != nil { // nothing moves its deadline any more
		t.Fatal(err)
	}
	time.Sleep(time.Until(lock.Deadline()))
	w.command.Trouble = nil
	if got := w.ending().Error(); !strings.HasSuffix(got, "it has ended") {
		t.Error(got)
	}
}

// However short its lease, a program is not ended while that is renewed on time; and if one
// renewal fails, there is time for the next.
func TestRenewedLeaseEndsNothing(t *testing.T) {
	for _, ttl := range []time.Duration{20 * time.Millisecond, 150 * time.Millisecond, time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			_, lock := hold(t, ttl)
			lease := time.Until(lock.Deadline())
			w := &watch{lock: lock, command: Command{Grace: min(lease/6, 10*time.Second)}, settle: settle(lease)}
			least := lease
			for range 3000 {
				time.Sleep(ttl / 1000)
				least = min(least, w.untilTerm())
			}
			if least < lease/3 {
				t.Errorf("of a lease of %v that is renewed, %v are left to the end of the program", lease, least)
			}
		})
	}
}
