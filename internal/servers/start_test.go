package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestStartRefuses(t *testing.T) {
	only(t, "local")
	for _, c := range []struct {
		name, variable, value string
		kind                  Kind
		want                  []string
	}{
		{"unknown kind", "X", "", "mongo", []string{`"mongo"`, "redis", "mysql", "zk", "etcd"}},
		{"unknown way", "DISTLOCK_SERVERS", "docker", Redis, []string{`"docker"`, "auto", "container", "local"}},
		{"no scheme", "DISTLOCK_REDIS_URL", "localhost:1", Redis, []string{"DISTLOCK_REDIS_URL", "scheme://host:port"}},
		{"other scheme", "DISTLOCK_REDIS_URL", "etcd://localhost:1", Redis, []string{`"etcd"`, "redis://"}},
		{"nobody there", "DISTLOCK_MYSQL_URL", "mysql://u:topsecret@127.0.0.1:1/d?password=topsecret", MySQL,
			[]string{"DISTLOCK_MYSQL_URL", "mysql://u:xxxxx@127.0.0.1:1/d", "refused"}},
		{"bad escape", "DISTLOCK_MYSQL_URL", "mysql://u:topsecret%zz@127.0.0.1:1/d", MySQL, []string{"DISTLOCK_MYSQL_URL", "not valid"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			s, err := Start(t.Context(), c.kind)
			if err == nil {
				t.Fatalf("got %s, want an error", errors.Join(errors.New(s.Origin()), s.Close()))
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			if strings.Contains(err.Error(), "topsecret") || strings.Contains(err.Error(), "%zz") {
				t.Errorf("%q shows the password", err)
			}
		})
	}
}

// TestNothingToBeHad: an empty PATH is a machine without Redis.
func TestNothingToBeHad(t *testing.T) {
	only(t, "local")
	t.Setenv("PATH", "")
	_, err := Start(t.Context(), Redis)
	if !errors.Is(err, ErrUnavailable) {
		t.Fatalf("got %v, want ErrUnavailable", err)
	}
	for _, part := range []string{"redis-server is not installed", "make servers", "DISTLOCK_REDIS_URL"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	for _, c := range []struct{ require, want string }{
		{"", "skip"}, {"mysql, zk", "skip"}, {"redis", "fail"}, {"all", "fail"}, {"mysql,redsi", "fail"},
	} {
		t.Run("require "+c.require, func(t *testing.T) {
			t.Setenv("DISTLOCK_REQUIRE", c.require)
			if got := outcome(t, Redis); got != c.want {
				t.Errorf("the test ends as %q, want %q", got, c.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Redis); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
		t.Errorf("with a cancelled context: got %v, want context.Canceled alone", err)
	}
}

// TestGivenVariant: what only the driver can talk to is taken if somebody is there.
func TestGivenVariant(t *testing.T) {
	only(t, "local")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	for _, url := range []string{"rediss://%s", "redis+sentinel://127.0.0.1:1,%s/main", "redis://%s?tls=on"} {
		t.Setenv("DISTLOCK_REDIS_URL", fmt.Sprintf(url, l.Addr()))
		s, err := Start(t.Context(), Redis)
		if err != nil {
			t.Errorf("%s: %v", url, err)
		} else if s.Version() != "" {
			t.Errorf("%s: version %q of a server that says nothing", url, s.Version())
		}
	}
	must(t, l.Close())
	if _, err := Start(t.Context(), Redis); err == nil {
		t.Error("taken though nobody is there")
	}
}

// ending is a test that notes how ForTest ends it.
type ending struct {
	testing.TB
	how string
}

func (e *ending) Skip(...any)  { e.how = "skip"; runtime.Goexit() }
func (e *ending) Fatal(...any) { e.how = "fail"; runtime.Goexit() }

func outcome(t *testing.T, kind Kind) string {
	e := &ending{TB: t, how: "run"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ForTest(e, kind)
	}()
	<-done
	return e.how
}

// TestPortLost: a stranger takes the port between its choice and the server's bind.
func TestPortLost(t *testing.T) {
	only(t, "local")
	skipWithout(t, Redis)
	r := redisRecipe
	var lost string
	r.local = func(ctx context.Context, at site) (launch, error) {
		if lost == "" {
			lost = at.addr()
			l, err := net.Listen("tcp", lost)
			must(t, err)
			t.Cleanup(func() { l.Close() })
			go func() {
				for c, err := l.Accept(); err == nil; c, err = l.Accept() {
					c.Close()
				}
			}()
		}
		return redisRecipe.local(ctx, at)
	}
	s, err := r.startLocal(t.Context())
	must(t, err)
	defer s.Close()
	if s.Addr() == lost {
		t.Fatalf("the server claims %s, which is somebody else's", lost)
	}
}

// TestEndsAtOnce: a server that gives up is reported with its own words and without waiting, and leaves nothing.
func TestEndsAtOnce(t *testing.T) {
	only(t, "local")
	skipWithout(t, Redis)
	r := redisRecipe
	var dir string
	r.local = func(ctx context.Context, at site) (launch, error) {
		dir = at.dir
		run, err := redisRecipe.local(ctx, at)
		run.args = append(run.args, "--no-such-option", "1")
		return run, err
	}
	_, err := r.startLocal(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no-such-option") || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want the server's own complaint, before any deadline", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder %s is still there (%v)", dir, err)
	}
}

// TestDyingThread: Linux binds the parent-death signal to a thread; the one that called Start may end at any time.
func TestDyingThread(t *testing.T) {
	only(t, "local")
	skipWithout(t, Redis)
	var s *Server
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with the goroutine
		s, err = Start(context.WithoutCancel(t.Context()), Redis)
	}()
	<-done
	must(t, err)
	defer s.Close()
	select {
	case <-s.ctl.exited():
		t.Fatal("the server died with the thread that started it")
	case <-time.After(300 * time.Millisecond): // the signal is sent within microseconds
	}
	must(t, s.Pause(t.Context()))
}

func TestParallelStarts(t *testing.T) {
	only(t, "local")
	skipWithout(t, Redis)
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for range 6 {
		wg.Go(func() {
			s, err := Start(t.Context(), Redis)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			again := seen[s.Addr()]
			seen[s.Addr()] = true
			mu.Unlock()
			if again {
				t.Errorf("%s was given out twice", s.Addr())
			}
			t.Cleanup(func() { must(t, s.Close()) })
		})
	}
	wg.Wait()
}
