package servers

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/distlock-go/distlock/internal/procstat"
)

// parentThread runs functions on one OS thread that lives as long as the process. The kernel sends the parent-death
// signal when the *thread* that forked ends, and the Go runtime ends threads as it likes. A server started from any
// goroutine could be killed in the middle of a test.
var parentThread = sync.OnceValue(func() chan<- func() {
	work := make(chan func()) // never closed: the thread must not end
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// startTied starts a command that the kernel kills when this process dies, by whatever cause. The returned function
// is to be called once the command has ended.
func startTied(cmd *exec.Cmd) (untie func(), err error) {
	ownGroup(cmd)
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	parentThread() <- func() { started <- cmd.Start() }
	return func() {}, <-started
}

// freeSpace is how many bytes there are for us in the file system of a folder's parent.
func freeSpace(folder string) (int64, bool) {
	var s unix.Statfs_t
	err := unix.Statfs(filepath.Dir(folder), &s)
	return int64(s.Bavail) * s.Bsize, err == nil
}

// awaitStopped returns once the child's threads have all stopped after a SIGSTOP. The signal alone only asks: a
// thread on another core may still answer a request. The kernel tells a parent of a stop when the last thread is in
// it; WNOWAIT leaves an exit to be collected by exec.Cmd.
func awaitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// signalChildren sends a signal to the children of a process, and returns when it has taken effect on all: when they have
// stopped, or are gone.
func signalChildren(parent int, signal syscall.Signal) error {
	for _, p := range procstat.All() {
		if p.Parent != parent {
			continue
		}
		if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		for signal != sigResume {
			now := procstat.Read(p.PID)
			if now.Parent == 0 || now.State == 'Z' || now.State == 'X' || now.State == 'T' && signal == sigPause {
				break
			}
			time.Sleep(time.Millisecond) // the kernel tells nobody but the parent
		}
	}
	return nil
}

// endWithin kills the processes that work in a folder, or below. The children of a Postgres that was stopped when its tests were
// killed outlive it, stopped.
func endWithin(folder string) {
	for _, p := range procstat.All() {
		dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.PID), "cwd"))
		if err == nil && (dir == folder || strings.HasPrefix(dir, folder+string(filepath.Separator))) {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
}

// freeShared removes the shared memory that a killed Postgres has left behind. The seventh line of its file has the number.
func freeShared(file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return
	}
	if lines := strings.Split(string(text), "\n"); len(lines) > 6 {
		if fields := strings.Fields(lines[6]); len(fields) == 2 {
			if id, err := strconv.Atoi(fields[1]); err == nil {
				_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
			}
		}
	}
}
