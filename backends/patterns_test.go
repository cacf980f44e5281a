//go:build unix

package backends_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/patterns"
)

// childEnv is set in the environment of a process that uses a pattern, to the pattern,
// the URL and the name.
const childEnv = "DISTLOCK_TEST_CHILD"

// TestMain lets the test binary be a process that uses a pattern.
func TestMain(m *testing.M) {
	if what := strings.Fields(os.Getenv(childEnv)); len(what) == 3 {
		if err := children[what[0]](what[1], what[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// children are what such a process does. It answers every line of its input.
var children = map[string]func(url, name string) error{"elect": electChild, "once": onceChild}

// testTTL is short, for the sake of the tests that wait for the end of a lease.
const testTTL = 3 * time.Second

// child is such a process, as its parent sees it.
type child struct {
	*exec.Cmd
	t       *testing.T
	in      io.WriteCloser
	answers *bufio.Scanner
}

func startChild(t *testing.T, ctx context.Context, what, url, name string) *child {
	t.Helper()
	c := &child{Cmd: exec.CommandContext(ctx, os.Args[0]), t: t}
	c.Env = append(os.Environ(), childEnv+"="+what+" "+url+" "+name)
	c.Stderr = os.Stderr
	var err error
	if c.in, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.answers = bufio.NewScanner(out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *child) signal(s os.Signal) {
	c.t.Helper()
	if err := c.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// ask puts a question in the pipe, where it waits if the process is stopped.
func (c *child) ask() { fmt.Fprintln(c.in) }

func (c *child) answer() string {
	c.t.Helper()
	if !c.answers.Scan() {
		c.t.Fatalf("the other process has ended: %v", c.answers.Err())
	}
	return c.answers.Text()
}

// electChild answers whether it leads.
func electChild(url, name string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, err := backends.Open(ctx, url)
	if err != nil {
		return err
	}
	defer l.Close()
	e := patterns.Elect(ctx, l, name, untilEnd, distlock.TTL(testTTL))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		_, leads := e.Leader()
		fmt.Println(leads)
	}
	return nil
}

// onceChild runs a job once, says whether it ran, and does nothing more.
func onceChild(url, name string) error {
	l, err := backends.Open(context.Background(), url)
	if err != nil {
		return err
	}
	defer l.Close()
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	ran, err := patterns.OncePer(context.Background(), l, name, testTTL, nothing)
	fmt.Println(ran, err)
	in.Scan()
	return nil
}

func nothing(context.Context) error { return nil }

func untilEnd(ctx context.Context, _ int64) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// The patterns on the real servers. What they do in detail is tested on memlock, in
// virtual time; here are the ends of leases, and stopped processes.
func TestPatterns(t *testing.T) {
	for _, kind := range servers.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel() // they wait for the ends of leases
			url := servers.ForTest(t, kind).LockURL()
			for name, test := range map[string]func(t *testing.T, url, name string){
				"elect":     testElect,
				"once":      testOnce,
				"maxhold":   testMaxHold,
				"semaphore": testSemaphore,
				"readwrite": testReadWrite,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, url, "patterns/"+name+"/"+rand.Text())
				})
			}
		})
	}
}

// A leader stopped for longer than its lease is not the leader when it comes
// back, from its very first look on.
func testElect(t *testing.T, url, name string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	other := startChild(t, ctx, "elect", url, name)
	for other.ask(); ; other.ask() {
		got := other.answer()
		if got == "true" {
			break
		}
		if got != "false" {
			t.Fatal(got)
		}
		time.Sleep(20 * time.Millisecond)
	}

	l := open(t, url)
	e := patterns.Elect(ctx, l, name, untilEnd, distlock.TTL(testTTL))
	other.signal(syscall.SIGSTOP)
	for _, ok := e.Leader(); !ok; _, ok = e.Leader() {
		if ctx.Err() != nil {
			t.Fatalf("no successor of a leader that was stopped: %v", e.Err())
		}
		time.Sleep(20 * time.Millisecond)
	}
	other.ask()
	other.signal(syscall.SIGCONT)
	if got := other.answer(); got != "false" {
		t.Errorf("the first answer of the leader that was stopped is %q, want false", got)
	}
	other.in.Close()
	if err := other.Wait(); err != nil {
		t.Errorf("the other process: %v", err)
	}
	cancel()
	if err := e.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait returned %v", err)
	}
}

// The record of a run outlives its process, for as long as the period (less a tenth); and a period that
// the store cannot keep is refused before the job runs.
func testOnce(t *testing.T, url, name string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l := open(t, url)
	other := startChild(t, ctx, "once", url, name)
	began := time.Now()
	other.ask()
	if got := other.answer(); got != "true <nil>" {
		t.Fatal(got)
	}
	other.signal(syscall.SIGKILL)
	_ = other.Wait() // it was killed
	runs := 0
	third := open(t, url)
	var asked time.Time
	for ; runs == 0; time.Sleep(20 * time.Millisecond) {
		asked = time.Now()
		if _, err := patterns.OncePer(ctx, l, name, testTTL, func(context.Context) error {
			runs++
			if took := time.Since(began); took < testTTL*9/10 {
				t.Errorf("the second run came after %v", took)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if ran, err := patterns.OncePer(ctx, third, name, testTTL, nothing); ran && time.Since(asked) < testTTL*9/10 || err != nil {
		t.Errorf("right after a run: ran %v, error %v", ran, err)
	}
	ran, err := patterns.OncePer(ctx, l, name+"/a-day", 24*time.Hour, nothing)
	if session := strings.HasPrefix(url, "zk"); ran == session || errors.Is(err, distlock.ErrInvalid) != session {
		t.Errorf("a period of a day: ran %v, error %v", ran, err)
	}
}

// A stuck holder is told, and loses its name to one that waits, not before.
func testMaxHold(t *testing.T, url, name string) {
	const longest = 2 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	stuck, err := patterns.MaxHold(open(t, url), longest).Lock(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := open(t, url).Lock(ctx, name)
	if err != nil {
		t.Fatalf("nobody but a stuck holder has the name: %v", err)
	}
	took := time.Since(began)
	if err := stuck.Err(); took < longest || !errors.Is(err, distlock.ErrLost) {
		t.Errorf("taken over after %v, while the error of the stuck holder was %v", took, err)
	}
	if err := stuck.Unlock(ctx); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("Unlock of the stuck holder: %v", err)
	}
	if err := lock.Unlock(ctx); err != nil {
		t.Errorf("Unlock of its successor: %v", err)
	}
}

// A permit that is not renewed, as of a holder that has died, comes back to one that
// waits; and never do more hold than there are permits.
func testSemaphore(t *testing.T, url, name string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const n, workers, turns = 2, 6, 5
	began := time.Now()
	if _, err := patterns.Semaphore(open(t, url), n).Lock(ctx, name, distlock.TTL(testTTL), distlock.NoRenewal()); err != nil {
		t.Fatal(err)
	}
	a, b := open(t, url), open(t, url)
	var holding atomic.Int32
	var wg sync.WaitGroup
	for i := range workers {
		s := patterns.Semaphore([]distlock.Locker{a, b}[i%2], n)
		wg.Go(func() {
			for range turns {
				lock, err := s.Lock(ctx, name)
				if err != nil {
					t.Error(err)
					return
				}
				now, left := holding.Add(1), int32(n)
				if time.Since(began) < testTTL {
					left-- // the dead holder's
				}
				if now > left {
					t.Errorf("%d hold, beside one that is dead: %v", now, left < n)
				}
				time.Sleep(20 * time.Millisecond)
				holding.Add(-1)
				if err := lock.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s := patterns.Semaphore(a, n)
	for range n {
		lock, err := s.Lock(ctx, name)
		if err != nil {
			t.Fatalf("the permit of a dead holder has not come back: %v", err)
		}
		defer lock.Unlock(ctx)
	}
}

// Readers and writers from two clients: writers are alone, and tokens rise.
func testReadWrite(t *testing.T, url, name string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	var readers, writers int
	var writeToken, anyToken int64
	a, b := open(t, url), open(t, url)
	var wg sync.WaitGroup
	for i := range 6 {
		read, write := patterns.ReadWrite([]distlock.Locker{a, b}[i%2], 3)
		wg.Go(func() {
			for turn := range 6 {
				locker, here, least := read, &readers, &writeToken
				if writes := (i+turn)%3 == 0; writes {
					locker, here, least = write, &writers, &anyToken
				}
				lock, err := locker.Lock(ctx, name)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				*here++
				if writers > 1 || writers == 1 && readers > 0 || lock.Token() <= *least {
					t.Errorf("%d writers and %d readers; token %d after %d", writers, readers, lock.Token(), *least)
				}
				anyToken = max(anyToken, lock.Token())
				if here == &writers {
					writeToken = lock.Token()
				}
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
				mu.Lock()
				*here--
				mu.Unlock()
				if err := lock.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
