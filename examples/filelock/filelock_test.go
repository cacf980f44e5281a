//go:build unix

package filelock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/examples/filelock"
)

// The whole test of a driver: a harness and one call.
func TestConformance(t *testing.T) {
	dir := folder(t)
	admin, err := filelock.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	conformance.Run(t, &harness{dir, admin}, nil)
}

// What reads a directory may miss a file that is replaced meanwhile.
func TestListMissesNoneThatIsReplacedMeanwhile(t *testing.T) {
	l, err := filelock.Open(folder(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const n = 1000
	done, stop := make(chan struct{}), make(chan struct{})
	var held []distlock.Lock
	for i := range n {
		h, err := l.TryLock(t.Context(), fmt.Sprint("n", i), distlock.TTL(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, h)
	}
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				_ = held[i%n].Extend(t.Context(), time.Hour)
			}
		}
	}()
	defer func() { close(stop); <-done }()
	for range 20 {
		if sts, err := distlock.List(t.Context(), l, "n"); err != nil || len(sts) != n {
			t.Fatalf("%d names were held all the time, and List showed %d: %v", n, len(sts), err)
		}
	}
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(conformance.ChildMain(func(context.Context) (distlock.Locker, error) { return filelock.Open(dir, nil) }))
	}
	os.Exit(m.Run())
}

// folder is in memory where there is such a place. A rename on a disk waits for what others
// write there, for seconds on a busy one; a lock that is not renewed meanwhile is rightly lost.
func folder(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "filelock")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

const childDir = "FILELOCK_CHILD_DIR"

type harness struct {
	dir   string
	admin *driver.Client
}

func (h *harness) Open(context.Context, *conformance.C) (distlock.Locker, error) {
	return filelock.Open(h.dir, nil)
}

func (h *harness) OpenStepped(_ context.Context, _ *conformance.C, step func()) (distlock.Locker, error) {
	return filelock.OpenStepped(h.dir, nil, step)
}

// Caps: what the driver promises is known; what the harness can do is added.
func (h *harness) Caps() conformance.Caps {
	caps := conformance.CapsFrom(h.admin.Capabilities())
	caps.Inspector, caps.Child = conformance.Yes, conformance.Yes
	caps.Proxy, caps.Process, caps.ServerClock, caps.Failover, caps.Namespaces = conformance.No, conformance.No, conformance.No, conformance.No, conformance.No
	return caps
}

func (h *harness) Timing() conformance.Timing { return conformance.TimingFrom(h.admin.Capabilities()) }

func (h *harness) Child() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+h.dir)
	return cmd
}

func (h *harness) Records(ctx context.Context, name string) (int, error) {
	st, err := distlock.Inspect(ctx, h.admin, name)
	if st.Held {
		return 1, err
	}
	return 0, err
}

func (h *harness) Waiters(context.Context, string) (int, error) { return -1, nil }

func (h *harness) Delete(ctx context.Context, name string) error {
	if err := distlock.Break(ctx, h.admin, name, 0); !errors.Is(err, distlock.ErrLost) {
		return err
	}
	return nil // nobody held it
}
