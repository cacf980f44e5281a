package hazard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"time"
)

// errStall says that a repetition told nothing, because the machine was too slow:
// the holder lost its lock before anything was done to it.
var errStall = errors.New("this machine was too slow to hold a lock until something was done to its holder")

// holder is a child process that holds a lock.
type holder struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	events chan holderEvent // closed when the process has ended
	ended  chan struct{}    // closed when what it tells is of no use any more
}

// startHolder starts a child process that takes a lock, and returns when it has it.
// The caller must have it leave.
func (e *env) startHolder(ctx context.Context, name string, ttl time.Duration) (*holder, holderEvent, error) {
	cmd, err := e.rig.Child(e.rig.URL(ttl))
	if err != nil {
		return nil, holderEvent{}, err
	}
	h := &holder{cmd: cmd, events: make(chan holderEvent), ended: make(chan struct{})}
	if h.in, err = cmd.StdinPipe(); err != nil {
		return nil, holderEvent{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, holderEvent{}, err
	}
	tie(cmd)
	started := make(chan error)
	go h.run(out, started)
	if err := <-started; err != nil {
		return nil, holderEvent{}, err
	}
	err = json.NewEncoder(h.in).Encode(holderOrder{name, ttl})
	var held holderEvent
	if err == nil {
		held, err = h.await(ctx, eventHeld, patience)
	}
	if err != nil {
		h.leave()
		return nil, held, err
	}
	return h, held, nil
}

// run starts the child and listens to it until it has ended, on one thread, because
// the child is tied to that.
func (h *holder) run(out io.Reader, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(h.events)
	err := h.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	for dec := json.NewDecoder(out); ; {
		var e holderEvent
		if dec.Decode(&e) != nil {
			_ = h.cmd.Wait() // killed, or told to leave: how it ended says nothing
			return
		}
		select {
		case h.events <- e:
		case <-h.ended:
		}
	}
}

// errSilent is the error of await when the time is up.
var errSilent = errors.New("the child process did not tell")

// await returns the next event of a kind. If the child tells before that it has
// lost its lock, it fails with errStall.
func (h *holder) await(ctx context.Context, kind string, within time.Duration) (holderEvent, error) {
	limit := time.NewTimer(within)
	defer limit.Stop()
	for {
		select {
		case e, ok := <-h.events:
			switch {
			case !ok:
				return e, errors.New("the child process has ended")
			case e.Event == kind:
				return e, nil
			case e.Event == eventLost:
				return e, errStall
			case e.Event == eventFailed:
				return e, fmt.Errorf("the child process: %s", e.Err)
			}
		case <-limit.C:
			return holderEvent{}, fmt.Errorf("%w of %q within %v", errSilent, kind, within)
		case <-ctx.Done():
			return holderEvent{}, ctx.Err()
		}
	}
}

// leave has the child let go, if it can, and returns when the process has ended: by
// itself, or killed if it takes too long. It must be called once.
func (h *holder) leave() {
	_ = resumeProcess(h.cmd.Process) // it may not be stopped, or have ended
	_ = h.in.Close()
	close(h.ended)
	for limit := time.After(patience); ; {
		select {
		case _, ok := <-h.events:
			if !ok {
				return
			}
		case <-limit:
			_ = h.cmd.Process.Kill() // closes events
			limit = nil
		}
	}
}
