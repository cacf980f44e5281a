package supervise

import (
	"os"
	"os/exec"
)

// start runs cmd. Windows has no process groups that could be signalled: what the
// program has started is not ended with it.
func start(cmd *exec.Cmd) (*group, error) {
	g := &group{cmd: cmd, done: make(chan struct{}), restore: func() {}}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // its outcome is read from ProcessState
		close(g.done)
	}()
	return g, nil
}

// signal does nothing: the console delivers Ctrl-C to the program by itself.
func (g *group) signal(os.Signal) {}

// terminate is kill: there is no request to end.
func (g *group) terminate() { g.kill() }

func (g *group) kill() { _ = g.cmd.Process.Kill() } // fails if it has ended

func (g *group) empty() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

func exitStatus(s *os.ProcessState) int { return s.ExitCode() }
