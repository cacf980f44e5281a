package supervise

import (
	"os"
	"os/exec"
	"syscall"
)

// group is a running program.
type group struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has ended

	// Nothing is ever sent on these: Windows has no job control.
	stopped chan syscall.Signal
	jobs    chan os.Signal
}

// start runs cmd. Windows has no process groups that could be signalled: what the
// program has started is not ended with it.
func start(cmd *exec.Cmd) (*group, error) {
	g := &group{cmd: cmd, done: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // its outcome is read from ProcessState
		close(g.done)
	}()
	return g, nil
}

func (g *group) restore() (interrupted bool) { return false }

// signal does nothing: the console delivers Ctrl-C to the program by itself.
func (g *group) signal(os.Signal) error { return nil }

func (g *group) job(os.Signal) bool { return false }

func (g *group) stays() bool { return false }

func (g *group) suspend(syscall.Signal) bool { return false }

func (g *group) resume() {}

// terminate is kill: there is no request to end.
func (g *group) terminate() error { return g.kill() }

func (g *group) kill() error {
	_ = g.cmd.Process.Kill() // fails if it has ended, and does not say so
	return nil
}

func (g *group) empty() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

// exitStatus is that of the program, after done.
func (g *group) exitStatus() int { return g.cmd.ProcessState.ExitCode() }
