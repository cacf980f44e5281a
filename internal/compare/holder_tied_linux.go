package compare

import (
	"os/exec"
	"syscall"
)

// tie has the kernel kill the child when the thread ends that has started it: one
// that is stopped could not notice that nobody is there any more.
func tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
