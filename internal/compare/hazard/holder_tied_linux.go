package hazard

import (
	"os/exec"
	"syscall"
)

// tie has the kernel kill the child when the thread ends that has started it: a stopped
// child could not notice that its parent is gone.
func tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
