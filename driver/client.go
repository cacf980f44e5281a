package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
)

const (
	// closePatience is how long Close waits for a backend that does not answer.
	closePatience = 10 * time.Second

	// answerPatience is how long after the last answer to a release Close waits for more, if that is
	// later: many locks need more than closePatience also where the store answers all.
	answerPatience = 2 * time.Second

	// abandonPatience is how long Close then waits for calls after it has cancelled
	// their contexts.
	abandonPatience = time.Second
)

// Client is the engine: it turns a Driver into a Locker. The Lockers of the driver
// packages embed one. It is safe for concurrent use.
type Client struct {
	driver  Driver
	caps    Capabilities
	opts    distlock.Options
	began   time.Time // what an instant is counted from
	tasks   tasks
	names   names
	renew   scheduler
	lanes   lanes
	lowered atomic.Bool // the log says that a TTL was more than the driver can promise

	lost, failedRenewals, tries, woken, polled atomic.Int64 // since New; Stat says what they are

	released atomic.Int64 // the instant of the last release in a lane that the store has confirmed

	mu       sync.Mutex
	left     leftovers            // of Close
	handles  map[string]*Handle   // by name: held, or lost and not yet cleaned up
	older    map[*Handle]struct{} // of the second kind, with names that were taken anew
	life     context.Context      // ends when Close is called, and with it all waiting
	endLife  context.CancelFunc
	calls    context.Context // ends callGrace later, and with it all calls but releases
	endCalls context.CancelCauseFunc
	done     chan struct{} // closed when Close has finished
	err      error         // what Close returned; set before done is closed
}

var _ distlock.Locker = (*Client)(nil)

// New returns a Locker over d. Nil options mean the defaults. It fails with
// ErrInvalid if the options ask for what the driver cannot do; no request is sent.
// Closing the Client closes d if that is an io.Closer.
func New(d Driver, o *distlock.Options) (*Client, error) {
	caps := d.Capabilities().limits()
	opts, err := normalize(o, caps)
	if err != nil {
		return nil, err
	}
	c := &Client{
		driver:  d,
		caps:    caps,
		opts:    opts,
		began:   time.Now(),
		handles: make(map[string]*Handle),
		older:   make(map[*Handle]struct{}),
		done:    make(chan struct{}),
	}
	c.tasks.life, c.tasks.endLife = context.WithCancelCause(context.Background())
	c.life, c.endLife = context.WithCancel(context.Background())
	c.calls, c.endCalls = context.WithCancelCause(context.Background())
	c.renew.client, c.renew.classes = c, make(map[class]*lane)
	c.lanes.init(c)
	return c, nil
}

// CheckOptions returns the ErrInvalid with which New would refuse the options, or nil. It is for
// drivers that ask the server before they call New: options are judged first.
func CheckOptions(d Driver, o *distlock.Options) error {
	_, err := normalize(o, d.Capabilities().limits())
	return err
}

// Capabilities returns what the driver promises, with the defaults filled in.
func (c *Client) Capabilities() Capabilities { return c.caps }

// adopt starts the life of a lock: from here on it is renewed, expires, and is
// released by Close. It reports false if Close was faster.
func (c *Client) adopt(h *Handle) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lifeErr() != nil {
		return false
	}
	if old := c.handles[h.name]; old != nil {
		c.older[old] = struct{}{}
	}
	c.handles[h.name] = h
	h.mu.Lock() // a driver that wraps the lock may use it already
	defer h.mu.Unlock()
	c.renew.add(h, h.nextEvent())
	return true
}

// forget ends what adopt has begun.
func (c *Client) forget(h *Handle) {
	c.renew.remove(h)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.older, h)
	if c.handles[h.name] == h {
		delete(c.handles, h.name)
	}
}

// locks returns what is held, or lost and not yet cleaned up. c.mu is held.
func (c *Client) locks() []*Handle {
	return slices.AppendSeq(slices.Collect(maps.Keys(c.older)), maps.Values(c.handles))
}

// holds reports whether a lock of this Client is what holds the name.
func (c *Client) holds(name string) bool {
	c.mu.Lock()
	h := c.handles[name]
	c.mu.Unlock()
	return h != nil && h.ended() == nil
}

// Close implements Locker.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.lifeErr() != nil {
		c.mu.Unlock()
		<-c.done
		return c.err
	}
	c.endLife()
	// All locks end here before the first name is freed: a holder of two locks must not see one of them taken by another while it
	// still trusts the second.
	handles := slices.DeleteFunc(c.locks(), (*Handle).leave)
	c.mu.Unlock()

	c.err = c.shutdown(handles)
	close(c.done)
	return c.err
}

// shutdown releases what is held, waits for the background, and closes the driver
// last, because the releases need it.
func (c *Client) shutdown(handles []*Handle) error {
	// Not before the ends of the locks: a renewal cut short by Close would be taken for a loss.
	time.AfterFunc(callGrace, func() { c.endCalls(errClosing) })
	patience := time.Now().Add(closePatience)
	for _, h := range handles {
		h.releaseLater(context.Background())
	}
	c.renew.stop()
	left := c.tasks.wait(closePatience)
	for left > 0 && c.now().sub(instant(c.released.Load())) < answerPatience { // the TTLs bound it
		left = c.tasks.wait(answerPatience)
	}
	if left > 0 {
		c.tasks.endLife(&NoAnswer{From: c.caps.Backend, After: closePatience})
	}
	c.lanes.end()
	left = c.tasks.wait(abandonPatience)

	var errs []error
	if left > 0 {
		errs = append(errs, fmt.Errorf("%d calls to %s have not returned", left, c.caps.Backend))
	}
	kept, reason := 0, error(nil)
	for _, h := range handles {
		if err := h.unreleased(); err != nil {
			kept, reason = kept+1, err
		}
	}
	if kept > 0 {
		errs = append(errs, fmt.Errorf("%d of its locks could not be released and end with their TTL: %w", kept, reason))
	}
	c.mu.Lock()
	if n := c.left; n.calls > 0 {
		errs = append(errs, fmt.Errorf("%d of its calls have failed and could not be undone; what they may have left ends with their TTL: %w", n.calls, n.last))
	}
	c.mu.Unlock()
	if closer, ok := c.driver.(io.Closer); ok {
		if err := c.closeDriver(closer, max(time.Until(patience), abandonPatience)); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return opError("close", "", err)
	}
	return nil
}

// leftovers are failed calls that Close has not waited to be undone.
type leftovers struct {
	calls int
	last  error // why
}

// notUndone notes one.
func (c *Client) notUndone(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = leftovers{c.left.calls + 1, why}
}

// closeDriver closes the driver, but does not wait for it any longer than patience:
// a client library may wait for a silent server.
func (c *Client) closeDriver(driver io.Closer, patience time.Duration) error {
	closed := make(chan struct{})
	var said error
	go func() {
		defer close(closed)
		said = c.guard(context.Background(), "", driver.Close)
	}()
	if await(context.Background(), closed, patience) {
		if said != nil {
			c.tasks.wait(tellPatience) // what the log is told of a panic
		}
		return said
	}
	return fmt.Errorf("the connections to %s are not closed after %v", c.caps.Backend, patience.Round(time.Millisecond))
}

// leave ends a lock here, and reports whether Close leaves its entry in the store. Both are decided in one step: KeepOnClose
// comes before that, or finds that the lock has ended.
func (h *Handle) leave() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.endHeld() || !h.kept {
		return false
	}
	r, _ := h.beginRelease(context.Background())
	r.err = distlock.ErrClosed // what an Unlock has to say from now on
	close(r.done)
	h.client.lanes.notify(func() { r.tellReleased(0, nil) }) // the record is nobody's lock any more
	return true
}

// lifeErr returns ErrClosed once Close has been called.
func (c *Client) lifeErr() error {
	if c.life.Err() != nil {
		return distlock.ErrClosed
	}
	return nil
}

// log writes a line on a lock: always with the same keys, and with ctx, in which a handler
// may find the request or the trace. Zero and nil mean that there is no token, no error.
func (c *Client) log(ctx context.Context, level slog.Level, text, name string, token int64, err error) {
	if !c.opts.Logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("lock", name), slog.String("backend", c.caps.Backend)}
	if token != 0 {
		attrs = append(attrs, slog.Int64("token", token))
	}
	if err != nil {
		attrs = append(attrs, slog.Any("err", err))
	}
	c.opts.Logger.LogAttrs(ctx, level, text, attrs...)
}

// tasks counts what a Client has under way, so that Close can wait for it: calls on
// the goroutines of callers, and goroutines of its own. It is no sync.WaitGroup: that
// allows no bounded wait, and nothing new after it was at zero.
type tasks struct {
	life    context.Context // ends when Close has lost its patience: nobody waits any more
	endLife context.CancelCauseFunc

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when running falls to 0; nil if nobody asked
}

// begin counts the calling goroutine until it calls finished.
func (t *tasks) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running++
}

func (t *tasks) finished() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// spawn runs f in a goroutine of its own.
func (t *tasks) spawn(f func()) {
	t.begin()
	go func() {
		defer t.finished()
		f()
	}()
}

// wait returns how many are left when none is, or patience is over.
func (t *tasks) wait(patience time.Duration) int {
	t.mu.Lock()
	if t.running == 0 {
		t.mu.Unlock()
		return 0
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	if await(context.Background(), idle, patience) {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}
