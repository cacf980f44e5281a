package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// startLocal runs the store's own binary. A port can still be lost to a stranger between the choice and the server's
// bind: then it starts over elsewhere.
func (r recipe) startLocal(ctx context.Context) (*Server, error) {
	for try := 1; ; try++ {
		s, err := r.tryLocal(ctx)
		if err == nil || !portTaken(err) || try == 3 {
			return s, err
		}
	}
}

func (r recipe) tryLocal(ctx context.Context) (*Server, error) {
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	at := site{dir: f.path, port: f.port, secret: newSecret()}
	run, err := r.local(ctx, at)
	if err != nil {
		return nil, errors.Join(advise(err, f.path), f.remove())
	}
	s := &Server{
		kind:   r.kind,
		url:    r.url(at),
		origin: "local process " + run.name,
		ctl:    &process{launch: run, folder: f},
		probe:  r.probe,
	}
	return s.boot(ctx, r, at)
}

// boot starts a server for the first time; on failure nothing of it is left.
func (s *Server) boot(ctx context.Context, r recipe, at site) (*Server, error) {
	if r.admin != nil {
		s.admin = r.admin(at)
	}
	s.state = killed
	if err := s.ctl.start(ctx); err != nil {
		return nil, errors.Join(s.advise(err), s.Close())
	}
	var err error
	if s.version, err = s.awaitReady(ctx); err != nil {
		return nil, errors.Join(s.advise(err), s.Close())
	}
	s.state = running
	return s, nil
}

// advise is advise for a local process. Of what a container lacks its engine knows.
func (s *Server) advise(err error) error {
	if p := s.local(); p != nil {
		return advise(err, p.folder.path)
	}
	return err
}

// portTaken recognises the stores' and Docker's words for an address, or a container's name, in use.
func portTaken(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "already in use") || strings.Contains(text, "already allocated")
}

// process is a local server.
type process struct {
	launch launch
	folder *folder
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the run has been collected; nil before the first start
}

func (p *process) logPath() string { return filepath.Join(p.folder.path, "server.log") }

func (p *process) start(ctx context.Context) (err error) {
	args := p.launch.args
	if p.cmd != nil && p.launch.again != nil {
		if args, err = p.launch.again(ctx); err != nil {
			return err
		}
	}
	// One log for all runs: after a restart the reason of a failure may be in the run before.
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own copy
	cmd := exec.Command(p.launch.path, args...)
	cmd.Dir = p.folder.path
	// etcd refuses to start when a variable of the caller's shell and one of our flags set the same thing.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "ETCD_") })
	cmd.Env = append(cmd.Env, p.launch.env...)
	cmd.Stdout, cmd.Stderr = log, log
	runAs(cmd, p.launch.user)
	untie, err := startTied(cmd)
	if err != nil {
		return fmt.Errorf("%s: %w", p.launch.path, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // howEnded tells of it
		untie()
		close(ended)
	}()
	p.cmd, p.ended = cmd, ended
	return nil
}

func (p *process) pause(ctx context.Context) error {
	if err := p.cmd.Process.Signal(sigPause); err != nil {
		return err
	}
	if err := awaitStopped(p.cmd.Process.Pid); err != nil {
		return err
	}
	if p.launch.family { // no child is born any more
		if err := signalChildren(p.cmd.Process.Pid, sigPause); err != nil {
			return err
		}
	}
	select {
	case <-p.ended:
		return fmt.Errorf("it had ended by itself%s", p.logTail(ctx))
	default:
		return nil
	}
}

func (p *process) resume(context.Context) error {
	if p.launch.family {
		if err := signalChildren(p.cmd.Process.Pid, sigResume); err != nil {
			return err
		}
	}
	return p.cmd.Process.Signal(sigResume)
}

func (p *process) kill(context.Context) error {
	if p.cmd == nil {
		return nil
	}
	if p.launch.family {
		if err := killChildren(p.cmd.Process.Pid, p.ended); err != nil {
			return err
		}
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended // the kernel closes the sockets of a process before it lets it be collected
	return nil
}

func (p *process) remove(context.Context) error { return p.folder.remove() }

func (p *process) exited() <-chan struct{} { return p.ended }

// logTail begins with how the process ended, if it has: the kernel kills one without a word in its log when memory is
// short.
func (p *process) logTail(context.Context) string {
	how := ""
	select {
	case <-p.ended:
		how = " (" + p.cmd.ProcessState.String() + ")"
	default:
	}
	text, err := os.ReadFile(p.logPath())
	if err != nil {
		return how
	}
	return how + tail(text)
}

// tail is the end of a log, as the last part of an error.
func tail(log []byte) string {
	const lines = 15
	log = bytes.TrimSpace(log)
	if len(log) == 0 {
		return "; its log is empty"
	}
	all := strings.Split(string(log), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "; the end of its log:\n\t" + strings.Join(all, "\n\t")
}

// RunTool runs a program to its end, and kills it and its children if ctx ends first. Its output becomes part of the
// error, nothing else. It is in a process group of its own, so that a Ctrl-C at the terminal is not for it. What it has
// left in the background, with its output open, is no error.
func RunTool(ctx context.Context, dir, path string, args ...string) ([]byte, error) {
	return runToolAs(ctx, 0, dir, path, args...)
}

// runToolAs is RunTool as another user, if that is not 0.
func runToolAs(ctx context.Context, user int, dir, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	ownGroup(cmd)
	runAs(cmd, user)
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = time.Second // a grandchild that left the group must not keep the output open for ever
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return out, fmt.Errorf("%s: %w%s", filepath.Base(path), err, tail(out))
	}
	return out, nil
}

// findProgram looks in PATH and then in the folders that hold servers but are often not in a user's PATH.
func findProgram(names ...string) (string, bool) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
		for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/opt/homebrew/bin", "/usr/local/bin"} {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, true
			}
		}
	}
	return "", false
}
