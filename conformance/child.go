package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

// childRequest is what a check asks of a child process, one JSON object to a line.
type childRequest struct {
	Op     string        `json:"op"` // "lock", "trylock", "err", "extend", "unlock"; of a herd: "open", "herd", "holding", "drop"
	Name   string        `json:"name,omitempty"`
	TTL    time.Duration `json:"ttl,omitempty"`
	Fixed  bool          `json:"fixed,omitempty"`
	Within time.Duration `json:"within,omitempty"` // bounds the call

	Herd    *herd `json:"herd,omitempty"`    // what its clients do
	Clients int   `json:"clients,omitempty"` // how many to open for it
}

// childReply is the answer. It has durations, never instants: clocks of two
// processes are not compared.
type childReply struct {
	OK    bool          `json:"ok"`
	Held  bool          `json:"held,omitempty"` // the error matches ErrHeld
	Lost  bool          `json:"lost,omitempty"` // the error matches ErrLost
	Mute  bool          `json:"mute,omitempty"` // the error says that the time was over
	Err   string        `json:"err,omitempty"`
	Token int64         `json:"token,omitempty"`
	Left  time.Duration `json:"left,omitempty"` // until the lock's Deadline
	Took  time.Duration `json:"took,omitempty"`
	Shut  bool          `json:"shut,omitempty"`  // the error is of Open: the child has no client, and ends
	Names []string      `json:"names,omitempty"` // that the herd is holding
}

// ChildMain is the life of a child process: it opens a client, obeys requests from
// its standard input, one lock at a time, and answers on its standard output. It
// returns the exit code for os.Exit when the input ends, and unlocks nothing then:
// its end is meant to be a crash.
//
//	func TestMain(m *testing.M) {
//		if os.Getenv("DISTLOCK_CHILD_URL") != "" {
//			os.Exit(conformance.ChildMain(open))
//		}
//		os.Exit(m.Run())
//	}
func ChildMain(open func(context.Context) (distlock.Locker, error)) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	l, err := openPatiently(ctx, open)
	cancel()
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		if in.Decode(new(childRequest)) == nil {
			_ = out.Encode(childReply{Shut: true, Mute: timedOut(err), Err: err.Error()}) // the parent may be gone
		}
		return 1
	}
	k := childLife{open: open, locker: l}
	for {
		var q childRequest
		if err := in.Decode(&q); err != nil {
			if err != io.EOF {
				fmt.Fprintln(os.Stderr, "child:", err)
				return 1
			}
			return 0
		}
		if err := out.Encode(k.obey(q)); err != nil {
			return 1 // the parent is gone
		}
	}
}

// openPatiently opens again for as long as it takes too long: a late machine says nothing of the driver.
func openPatiently(ctx context.Context, open func(context.Context) (distlock.Locker, error)) (distlock.Locker, error) {
	for {
		l, err := open(ctx)
		if err == nil || !timedOut(err) || ctx.Err() != nil {
			return l, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// timedOut reports whether an error says that the time was over.
func timedOut(err error) bool {
	var silence interface {
		error
		Timeout() bool
	}
	return errors.As(err, &silence) && silence.Timeout()
}

type childLife struct {
	open   func(context.Context) (distlock.Locker, error)
	locker distlock.Locker
	lock   distlock.Lock
	herd   []distlock.Locker
	got    []distlock.Lock // by the herd
}

func (k *childLife) obey(q childRequest) childReply {
	ctx, cancel := context.WithTimeout(context.Background(), max(q.Within, time.Second))
	defer cancel()
	began := time.Now()
	err := k.do(ctx, q)
	r := childReply{
		OK:   err == nil,
		Held: errors.Is(err, distlock.ErrHeld),
		Lost: errors.Is(err, distlock.ErrLost),
		Mute: timedOut(err),
		Took: time.Since(began),
	}
	if err != nil {
		r.Err = err.Error()
	}
	if q.Op == "holding" {
		r.Names = holding(k.got)
	}
	if k.lock != nil {
		r.Token, r.Left = k.lock.Token(), time.Until(k.lock.Deadline())
	}
	return r
}

func (k *childLife) do(ctx context.Context, q childRequest) (err error) {
	opts := []distlock.Option{distlock.TTL(q.TTL)}
	if q.Fixed {
		opts = append(opts, distlock.NoRenewal())
	}
	acquire := map[string]func(context.Context, string, ...distlock.Option) (distlock.Lock, error){
		"lock": k.locker.Lock, "trylock": k.locker.TryLock,
	}[q.Op]
	switch {
	case acquire != nil:
		var l distlock.Lock
		if l, err = acquire(ctx, q.Name, opts...); err == nil {
			k.lock = l // a call that fails leaves the old handle: a check may use it again
		}
	case q.Op == "open":
		for range q.Clients {
			p, err := openPatiently(ctx, k.open)
			if err != nil {
				return err
			}
			k.herd = append(k.herd, p)
		}
	case q.Op == "herd":
		k.got, _ = q.Herd.run(ctx, k.herd)
	case q.Op == "holding": // its answer is in the reply
	case q.Op == "drop":
		for _, l := range k.got {
			err = errors.Join(err, l.Unlock(ctx))
		}
	case k.lock == nil:
		err = errors.New("the child holds no lock")
	case q.Op == "extend":
		err = k.lock.Extend(ctx, q.TTL)
	case q.Op == "err":
		err = k.lock.Err()
	case q.Op == "unlock":
		err = k.lock.Unlock(ctx)
	default:
		err = fmt.Errorf("the child knows no request %q", q.Op)
	}
	return err
}

// process is a child process of a check.
type process struct {
	c       *C
	who     string
	cmd     *exec.Cmd
	in      io.WriteCloser
	replies chan childReply // unbuffered: one reply to one request
	gone    chan struct{}   // closed when the process has ended
	stderr  tail
}

// spawn starts a child process. It is killed when the check is over.
func (c *C) spawn(who string) *process {
	h, ok := can[Child](c, capChild)
	if !ok {
		c.lacks(capChild, "the harness is no Child")
	}
	k := &process{c: c, who: who, cmd: h.Child(), replies: make(chan childReply), gone: make(chan struct{})}
	k.cmd.Stderr = &k.stderr
	in, err := k.cmd.StdinPipe()
	if err != nil {
		c.Failf("the pipe to child %s: %v", who, err)
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		c.Failf("the pipe from child %s: %v", who, err)
	}
	if err := k.cmd.Start(); err != nil {
		c.Failf("child %s could not be started: %v", who, err)
	}
	k.in = in
	c.Cleanup(k.kill)
	go func() {
		defer close(k.gone)
		dec := json.NewDecoder(out)
		for {
			var r childReply
			if dec.Decode(&r) != nil {
				_ = k.cmd.Wait() // killed, mostly: how it ended says nothing
				return
			}
			select {
			case k.replies <- r:
			case <-c.ctx.Done(): // nobody listens any more
			}
		}
	}()
	return k
}

// ask sends a request and waits for the answer. The stamps are the parent's: the
// child did what it did between them.
func (k *process) ask(q childRequest) (r childReply, call, ret time.Duration) {
	c := k.c
	q.Within = max(q.Within, patience)
	limit := time.NewTimer(q.Within + patience + c.Slack())
	defer limit.Stop()
	b, _ := json.Marshal(q) // plain fields cannot fail
	e := oracle.Event{Op: oracle.Op("child " + q.Op), Client: k.who, Name: q.Name, TTL: q.TTL, Fixed: q.Fixed, Call: c.recorder.Stamp()}
	if _, err := k.in.Write(append(b, '\n')); err != nil {
		c.Failf("child %s does not listen: %v\n%s", k.who, err, &k.stderr)
	}
	select {
	case r = <-k.replies:
	case <-k.gone:
		c.Failf("child %s has died of %s:\n%s", k.who, q.Op, &k.stderr)
	case <-limit.C:
		c.Failf("child %s has not answered to %s within %v", k.who, q.Op, q.Within+patience+c.Slack())
	case <-c.ctx.Done(): // its answers are no longer passed on
		c.Failf("child %s had not answered to %s yet: %v", k.who, q.Op, c.ctx.Err())
	}
	e.Return = c.recorder.Stamp()
	e.Outcome, e.Err, e.Token = oracle.OutcomeOK, r.Err, r.Token
	if !r.OK {
		e.Outcome = oracle.OutcomeUnknown
	}
	c.recorder.Add(e)
	switch {
	case r.Shut && r.Mute: // which says nothing of what the check is about
		c.Inconclusivef("child %s could not open a client in time: %s", k.who, r.Err)
	case r.Shut:
		c.Failf("child %s could not open a client: %s", k.who, r.Err)
	}
	return r, e.Call.At, e.Return.At
}

// must is ask for what has to succeed. failure says in words what it is if that does not, although there was an answer.
func (k *process) must(q childRequest, failure string) (r childReply, call, ret time.Duration) {
	r, call, ret = k.ask(q)
	switch {
	case r.Mute:
		k.c.Inconclusivef("%s had no answer to %s in time: %s", k.who, q.Op, r.Err)
	case !r.OK:
		k.c.Failf("%s %s: %s", k.who, failure, r.Err)
	}
	return r, call, ret
}

// kill ends the process without a warning, and waits until it is gone.
func (k *process) kill() {
	_ = k.cmd.Process.Kill() // it may be gone already
	<-k.gone
}

// tail is a writer that keeps the end of what was written.
type tail struct {
	mu sync.Mutex
	b  []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if n := len(t.b) - 4096; n > 0 {
		t.b = t.b[n:]
	}
	return len(p), nil
}

// String returns what is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
