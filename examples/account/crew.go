package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"
)

// workerEnv is set in the environment of worker processes.
const workerEnv = "DISTLOCK_EXAMPLE_WORKER"

// crew is the workers of one run, as their parent sees them. It is used by one
// goroutine.
type crew struct {
	members map[int]*member
	events  chan event // from all of them; closed by nobody
	log     []event    // all that were received
	quit    chan struct{}
}

// member is one worker process.
type member struct {
	process *exec.Cmd
	in      io.WriteCloser
	tell    *json.Encoder
	ended   chan struct{} // closed when its output has been read to the end
}

func newCrew() *crew {
	return &crew{members: make(map[int]*member), events: make(chan event), quit: make(chan struct{})}
}

// hire starts a process for j.
func (c *crew) hire(ctx context.Context, j job) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	m := &member{process: exec.CommandContext(ctx, self), ended: make(chan struct{})}
	m.process.Env = append(os.Environ(), workerEnv+"=1")
	m.process.Stderr = os.Stderr
	if m.in, err = m.process.StdinPipe(); err != nil {
		return err
	}
	out, err := m.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.process.Start(); err != nil {
		return err
	}
	c.members[j.Worker] = m
	go c.listen(j.Worker, m, out)
	m.tell = json.NewEncoder(m.in)
	return m.tell.Encode(j)
}

// listen passes on what a worker tells. The last of it is always done or failed.
func (c *crew) listen(id int, m *member, out io.Reader) {
	defer close(m.ended)
	decoder := json.NewDecoder(out)
	for last := ""; last != done && last != failed; {
		var e event
		if err := decoder.Decode(&e); err != nil {
			e = event{Worker: id, What: failed, At: time.Now(), Text: "the process ended before it was done: " + err.Error()}
		}
		last = e.What
		select {
		case c.events <- e:
		case <-c.quit:
			return
		}
	}
}

// await receives until n of the workers have told what, since the run began. A
// worker that fails makes it fail.
func (c *crew) await(ctx context.Context, what string, n int) error {
	for c.count(what) < n {
		select {
		case e := <-c.events:
			c.log = append(c.log, e)
			if e.What == failed {
				return fmt.Errorf("worker %d: %s", e.Worker, e.Text)
			}
		case <-ctx.Done():
			return fmt.Errorf("while waiting for %d workers to be %q: %w", n, what, ctx.Err())
		}
	}
	return nil
}

func (c *crew) count(what string) int {
	n := 0
	for _, e := range c.log {
		if e.What == what {
			n++
		}
	}
	return n
}

// text is that of the first event of this kind.
func (c *crew) text(what string) string {
	i := slices.IndexFunc(c.log, func(e event) bool { return e.What == what })
	return c.log[i].Text
}

// took is the time from when all were ready until the last was done.
func (c *crew) took() time.Duration {
	var begin, end time.Time
	for _, e := range c.log {
		if e.What == ready {
			begin = e.At
		}
		end = e.At
	}
	return end.Sub(begin)
}

// send lets workers go on that wait for a "go".
func (c *crew) send(workers ...int) error {
	for _, id := range workers {
		if err := c.members[id].tell.Encode("go"); err != nil {
			return fmt.Errorf("worker %d: %w", id, err)
		}
	}
	return nil
}

// dismiss ends all processes and waits for them.
func (c *crew) dismiss() {
	close(c.quit)
	for _, m := range c.members {
		m.in.Close()
		m.process.Process.Kill() // also if it is stopped; if it is done, it has closed everything
		<-m.ended
		var exit *exec.ExitError
		if err := m.process.Wait(); err != nil && !errors.As(err, &exit) {
			fmt.Fprintln(os.Stderr, "account: waiting for a worker:", err)
		}
	}
}
