package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/distlock-go/distlock/internal/testkit"
)

const childEnv = "DISTLOCK_SERVERS_TEST_CHILD"

// TestMain lets the test binary be its own child: one that starts a server and waits to be killed.
func TestMain(m *testing.M) {
	kind := os.Getenv(childEnv)
	if kind == "" {
		os.Exit(m.Run())
	}
	s, err := Start(context.Background(), Kind(kind))
	if err != nil {
		fmt.Println("error", strconv.Quote(err.Error()))
		os.Exit(1)
	}
	fmt.Println("serving", s.Addr())
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // ends with the parent, should that go first
	os.Exit(1)
}

// killedParent starts a server in a child, kills the child with SIGKILL and returns where the server was.
func killedParent(t *testing.T, kind Kind) (addr, folder string) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	child := exec.CommandContext(t.Context(), exe)
	child.Env = append(os.Environ(), childEnv+"="+string(kind))
	child.Stderr = os.Stderr
	_, err = child.StdinPipe()
	must(t, err)
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, serving := strings.CutPrefix(strings.TrimSpace(line), "serving ")
	if !serving {
		t.Fatalf("the child says %q (%v)", line, err)
	}
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	must(t, conn.Close())
	_, port, err := net.SplitHostPort(addr)
	must(t, err)
	folder = filepath.Join(os.TempDir(), folderPrefix+port)
	if _, err := os.Stat(folder); err != nil { // from its death on any run may sweep it, also one beside this
		t.Fatalf("a server without its folder: %v", err)
	}
	must(t, child.Process.Kill())
	_ = child.Wait() // "signal: killed"
	return addr, folder
}

// TestParentKilled: a local server dies with a parent that had no time to close it. All are tried, for a binary
// that changes its user on the way would lose the kernel's promise.
func TestParentKilled(t *testing.T) {
	only(t, "local")
	for _, kind := range Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			skipWithout(t, kind)
			addr, folder := killedParent(t, kind)
			testkit.Until(t, "the server is gone", func() bool {
				conn, err := net.Dial("tcp", addr)
				if err == nil {
					conn.Close()
				}
				return err != nil
			})
			wantSwept(t, folder)
		})
	}
}

// TestContainerSwept: a container outlives a killed parent, until the next run.
func TestContainerSwept(t *testing.T) {
	only(t, "container")
	ForTest(t, Redis) // or skip
	_, folder := killedParent(t, Redis)
	docker, err := engine(t.Context())
	must(t, err)
	defer docker.provider.Close()
	name := filepath.Base(folder)
	if testcontainers.ReadConfig().Config.RyukDisabled { // else its helper may have been quicker than this look
		_, err = docker.ContainerInspect(t.Context(), name, client.ContainerInspectOptions{})
		must(t, err)
	}
	wantSwept(t, folder)
	if _, err = docker.ContainerInspect(t.Context(), name, client.ContainerInspectOptions{}); !errdefs.IsNotFound(err) {
		t.Fatalf("asking for container %s: got %v, want not found", name, err)
	}
}

// TestFolder: two servers never share a port, whatever process has it and whether or not it listens.
func TestFolder(t *testing.T) {
	f, err := newFolder()
	must(t, err)
	if _, err := makeFolder(f.path, f.port); !errors.Is(err, os.ErrExist) {
		t.Errorf("a reserved port: got %v, want ErrExist", err)
	}
	if _, err := lockPath(f.path); !errors.Is(err, errLocked) {
		t.Errorf("locking another's folder: got %v, want errLocked", err)
	}
	must(t, f.remove())

	l, err := net.Listen("tcp", f.addr())
	must(t, err)
	defer l.Close()
	if _, err := makeFolder(f.path, f.port); !errors.Is(err, os.ErrExist) {
		t.Errorf("a port somebody listens on: got %v, want ErrExist", err)
	}
	if _, err := os.Stat(f.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a port that could not be had stays: %v", err)
	}
}

func wantSwept(t *testing.T, folder string) {
	t.Helper()
	testkit.Until(t, "the folder is swept", func() bool {
		sweep(t.Context())
		_, err := os.Stat(folder)
		return errors.Is(err, os.ErrNotExist)
	})
}
