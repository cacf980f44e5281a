package servers

import (
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
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
