//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package servers

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// startTied starts a command and beside it a shell that kills it when this process dies, by whatever cause. Only we
// hold the other end of the shell's standard input, and the system closes it for us. The returned function is to be
// called once the command has ended: it sends the shell away.
func startTied(cmd *exec.Cmd) (untie func(), err error) {
	stdin, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, err
	}
	shell := exec.Command("/bin/sh", "-c", `read -r _; kill -9 "$1"`, "sh", strconv.Itoa(cmd.Process.Pid))
	shell.Stdin = stdin
	ownGroup(shell)
	if err := shell.Start(); err != nil {
		ours.Close()
		return func() {}, nil // best effort: the server runs, only untied
	}
	return func() {
		_ = shell.Process.Kill() // before the pipe is closed, or it would kill a process id that is no longer ours
		_ = shell.Wait()
		ours.Close()
	}, nil
}

// freeSpace has another call on each system; there the servers' own words have to do.
func freeSpace(string) (int64, bool) { return 0, false }

// awaitStopped has no portable equivalent of Linux's: the stop takes effect at each thread's next return from the
// kernel, and nothing here can see that.
func awaitStopped(int) error { return nil }

// signalChildren sends a signal to the children of a process.
func signalChildren(parent int, signal syscall.Signal) error {
	// It finds none, or is not there: then nothing is to be done, or can be.
	_ = exec.Command("pkill", "-"+strconv.Itoa(int(signal)), "-P", strconv.Itoa(parent)).Run()
	return nil
}

// endWithin does nothing: what works in a folder cannot be asked for here.
func endWithin(string) {}

// freeShared leaves the shared memory of a killed Postgres, some bytes, to the next start of the system.
func freeShared(string) {}
