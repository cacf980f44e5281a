package supervise

import "syscall"

// dieWithParent has the kernel kill the program if this process dies without a
// chance to do so (kill -9): its lock will not be renewed any more.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
