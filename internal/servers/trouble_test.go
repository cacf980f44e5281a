package servers

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/distlock-go/distlock/internal/testkit"
)

// skipWithout skips a test, or fails it, as ForTest does, without a server that has to be started for it.
func skipWithout(t *testing.T, kinds ...Kind) {
	t.Helper()
	for _, kind := range kinds {
		_, err := recipes[kind].local(t.Context(), site{dir: openDir(t), port: 1, secret: "x"})
		needed, wrong := required(os.Getenv("DISTLOCK_REQUIRE"), kind)
		must(t, wrong)
		if errors.As(err, new(unavailable)) && !needed {
			t.Skip(err)
		}
		must(t, err)
	}
}

// openDir is a folder that other users reach: t.TempDir is within one of root's alone, and Postgres runs as nobody.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "distlock-test-")
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// wantSaid looks for all that an error has to tell.
func wantSaid(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("got no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q:\n%v", part, err)
		}
	}
	if strings.Contains(err.Error(), "make servers") {
		t.Errorf("the error advises to install what is there:\n%v", err)
	}
}

// TestPortsTaken: strangers have all ports, of one range of a single port.
func TestPortsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = newFolderOf(port, port)
	wantSaid(t, err, "no free port", "ss -ltnp", filepath.Join(os.TempDir(), folderPrefix))
}

// TestPortAlwaysLost: each time a stranger is quicker than the server.
func TestPortAlwaysLost(t *testing.T) {
	only(t, "local")
	skipWithout(t, Redis)
	r := redisRecipe
	r.local = func(ctx context.Context, at site) (launch, error) {
		l, err := net.Listen("tcp", at.addr())
		must(t, err)
		t.Cleanup(func() { l.Close() })
		return redisRecipe.local(ctx, at)
	}
	_, err := r.startLocal(t.Context())
	wantSaid(t, startError(t.Context(), Redis, nil, err), "no redis server", "already in use", "another program took the port", "DISTLOCK_REDIS_URL")
}

// TestSlowStart: a server that the machine is late to start is waited for. One that never answers is reported with its
// address, with its own words and with what to do.
func TestSlowStart(t *testing.T) {
	only(t, "local")
	skipWithout(t, Redis)
	begin := filepath.Join(openDir(t), "begin")
	late := func(script string) recipe {
		r := redisRecipe
		r.local = func(ctx context.Context, at site) (launch, error) {
			run, err := redisRecipe.local(ctx, at)
			run.args = append([]string{"-c", script, begin, run.path}, run.args...)
			run.path = "/bin/sh"
			return run, err
		}
		return r
	}
	t.Run("late", func(t *testing.T) {
		started := make(chan error, 1)
		waiting := late(`echo "waiting" > "$0.waiting"; while ! [ -e "$0" ]; do sleep 0.05; done; exec "$@"`)
		go func() {
			s, err := waiting.startLocal(t.Context())
			if err == nil {
				err = s.Close()
			}
			started <- err
		}()
		testkit.Until(t, "the server is being started", func() bool { return exists(begin + ".waiting") })
		must(t, os.WriteFile(begin, nil, 0o600))
		must(t, <-started)
	})
	t.Run("never", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		never := late(`echo "I am still reading my data"; echo > "$0.reading"; exec sleep 1000`)
		failed := make(chan error, 1)
		go func() {
			_, err := never.startLocal(deadlined{ctx})
			failed <- err
		}()
		testkit.Until(t, "the server is being started", func() bool { return exists(begin + ".reading") })
		cancel(nil)
		wantSaid(t, startError(t.Context(), Redis, nil, <-failed), "no redis server", "does not answer at 127.0.0.1:", "I am still reading my data", "machine is busy")
	})
}

// deadlined is a context whose end counts as its deadline: readyBound without the wait.
type deadlined struct{ context.Context }

// Value hides the context within from package context, which would ask that one for its error.
func (d deadlined) Value(any) any { return nil }

func (d deadlined) Err() error {
	if d.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// TestKilledAtStart: the kernel kills a server without a word in its log when memory is short.
func TestKilledAtStart(t *testing.T) {
	only(t, "local")
	skipWithout(t, Redis)
	r := redisRecipe
	r.local = func(ctx context.Context, at site) (launch, error) {
		run, err := redisRecipe.local(ctx, at)
		run.path, run.args = "/bin/sh", []string{"-c", "kill -9 $$"}
		return run, err
	}
	_, err := r.startLocal(t.Context())
	wantSaid(t, startError(t.Context(), Redis, nil, err), "ended before it was ready", "signal: killed", "its log is empty")
}

// TestOldServer: the server of a run that was killed still has its port, its folder is nobody's. The folder is swept, and
// the port is left alone.
func TestOldServer(t *testing.T) {
	f, err := newFolder()
	must(t, err)
	l, err := net.Listen("tcp", f.addr())
	must(t, err)
	defer l.Close()
	must(t, f.lock.Close()) // as the kernel does when a process dies
	wantSwept(t, f.path)    // another program may be about to
	if _, err := newFolderOf(f.port, f.port); err == nil {
		t.Errorf("port %d was given out, and the old server has it", f.port)
	}
}

// TestSweepLeavesOthers: a folder that is not that of a server here is somebody's.
func TestSweepLeavesOthers(t *testing.T) {
	others := []string{filepath.Join(os.TempDir(), folderPrefix+"2024"), filepath.Join(os.TempDir(), folderPrefix+"19999")}
	must(t, os.Mkdir(others[0], 0o700))
	must(t, os.WriteFile(others[1], nil, 0o600))
	sweep(t.Context())
	for _, path := range others {
		if !exists(path) {
			t.Errorf("%s was swept", path)
		}
		_ = os.Remove(path)
	}
}

// TestFullDisk starts each server in a file system without room. Only root can make one.
func TestFullDisk(t *testing.T) {
	only(t, "local")
	if os.Geteuid() != 0 {
		t.Skip("not root: no small file system can be mounted")
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=1m", "distlock-test", dir).CombinedOutput(); err != nil {
		t.Skipf("no small file system can be mounted: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	skipWithout(t, Kinds...) // in a folder with room
	// A program of the system may need a little for itself, so the disk is full and not merely small.
	filler, err := os.Create(filepath.Join(dir, "filler"))
	must(t, err)
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	must(t, filler.Close())
	t.Setenv("TMPDIR", dir)
	for _, kind := range Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s, err := Start(t.Context(), kind)
			if err == nil {
				must(t, s.Close())
				if kind == Redis {
					t.Skip("this release of Redis starts on a full disk")
				}
			}
			wantSaid(t, err, "no "+string(kind)+" server", dir+" has 0 MB free", "set TMPDIR", kind.EnvURL())
		})
	}
	left, err := filepath.Glob(filepath.Join(dir, folderPrefix+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}
