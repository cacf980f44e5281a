//go:build unix && !linux

package supervise

import "syscall"

// dieWithParent does nothing: only Linux offers it.
func dieWithParent(*syscall.SysProcAttr) {}
