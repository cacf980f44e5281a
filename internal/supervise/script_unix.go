//go:build unix

package supervise

import (
	"errors"
	"os/exec"
	"syscall"
)

// shellScript returns the command that runs a file as a script of the shell, if the
// system could not tell what it is: a script without "#!", which execvp(3) runs so.
func shellScript(cmd *exec.Cmd, err error) (*exec.Cmd, bool) {
	if !errors.Is(err, syscall.ENOEXEC) {
		return nil, false
	}
	script := exec.Command("/bin/sh", append([]string{cmd.Path}, cmd.Args[1:]...)...)
	script.Stdin, script.Stdout, script.Stderr, script.Env = cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env
	script.SysProcAttr = cmd.SysProcAttr
	return script, true
}
