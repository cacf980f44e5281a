package distlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// maxCall bounds a single call of a driver. Nothing that takes longer than
	// this is of use to somebody who waits for a lock.
	maxCall = 10 * time.Second

	// closePatience is how long Close waits for a backend that does not answer.
	closePatience = 10 * time.Second

	// abandonPatience is how long Close then waits for calls whose contexts it has
	// cancelled.
	abandonPatience = time.Second

	// closeParallel is how many locks Close releases at the same time.
	closeParallel = 64
)

// Client is the portable half of a lock: it turns a Driver into a Locker. The
// Lockers of the driver packages embed one. It is safe for concurrent use.
type Client struct {
	driver Driver
	caps   Capabilities
	opts   Options
	tasks  tasks
	queues queues
	renew  scheduler
	timers timers

	mu      sync.Mutex
	handles map[*Handle]struct{} // held, or lost and not yet cleaned up
	life    context.Context      // ends when Close is called, and with it all waiting
	endLife context.CancelFunc
	done    chan struct{} // closed when Close has finished
	err     error         // what Close returned; set before done is closed
}

var (
	_ Locker    = (*Client)(nil)
	_ Inspector = (*Client)(nil)
	_ Breaker   = (*Client)(nil)
	_ Sweeper   = (*Client)(nil)
)

// New returns a Locker over d. Nil options mean the defaults. It fails with
// ErrInvalid if the options ask for what the driver cannot do; no request is sent.
// Closing the Client closes d if that is an io.Closer.
func New(d Driver, o *Options) (*Client, error) {
	caps := d.Capabilities().limits()
	opts, err := o.normalize(caps)
	if err != nil {
		return nil, opError("open", "", err)
	}
	c := &Client{
		driver:  d,
		caps:    caps,
		opts:    opts,
		handles: make(map[*Handle]struct{}),
		done:    make(chan struct{}),
	}
	c.tasks.init()
	c.life, c.endLife = context.WithCancel(context.Background())
	c.renew.init(c)
	return c, nil
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
	c.handles[h] = struct{}{}
	c.renew.add(h, h.nextEvent())
	return true
}

// forget ends what adopt has begun.
func (c *Client) forget(h *Handle) {
	c.renew.remove(h)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.handles, h)
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
	handles := make([]*Handle, 0, len(c.handles))
	for h := range c.handles {
		handles = append(handles, h)
	}
	c.mu.Unlock()

	c.err = c.shutdown(handles)
	close(c.done)
	return c.err
}

// shutdown releases what is held, waits for the background, and closes the driver
// last, because the releases need it.
func (c *Client) shutdown(handles []*Handle) error {
	// All beliefs end before the first name is freed: a holder of two locks must
	// not see one of them taken by another while it still trusts the second.
	for _, h := range handles {
		h.end()
	}
	c.releaseAll(handles)
	c.renew.stop()
	left := c.tasks.wait(closePatience)
	if left > 0 {
		c.tasks.abandon()
		left = c.tasks.wait(abandonPatience)
	}
	c.tasks.close()

	var errs []error
	if left > 0 {
		errs = append(errs, fmt.Errorf("%d calls to %s have not returned", left, c.caps.Backend))
	}
	if n, err := unreleased(handles); n > 0 {
		errs = append(errs, fmt.Errorf("%d locks could not be released and end with their TTL: %w", n, err))
	}
	if closer, ok := c.driver.(io.Closer); ok {
		if err := closer.Close(); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return opError("close", "", err)
	}
	return nil
}

// unreleased counts the locks whose release has failed, and returns one of the
// reasons.
func unreleased(handles []*Handle) (n int, reason error) {
	for _, h := range handles {
		if err := h.outcome(); err != nil && !errors.Is(err, ErrLost) {
			n, reason = n+1, err
		}
	}
	return n, reason
}

// releaseAll starts the releases, a bounded number at a time, without waiting for
// the last of them.
func (c *Client) releaseAll(handles []*Handle) {
	next := make(chan *Handle, len(handles))
	for _, h := range handles {
		next <- h
	}
	close(next)
	for range min(closeParallel, len(handles)) {
		c.tasks.spawn(func(*worker) {
			for h := range next {
				select {
				case <-h.release(context.Background()):
				case <-c.tasks.life.Done():
				}
			}
		})
	}
}

// Inspect implements Inspector, with ErrUnsupported if the driver does not.
func (c *Client) Inspect(ctx context.Context, name string) (Status, error) {
	d, ok := c.driver.(Inspector)
	return query(c, ctx, "inspect", name, ok, checkName(name), func(ctx context.Context) (Status, error) {
		return d.Inspect(ctx, name)
	})
}

// List implements Inspector, with ErrUnsupported if the driver does not.
func (c *Client) List(ctx context.Context, prefix string) ([]Status, error) {
	d, ok := c.driver.(Inspector)
	return query(c, ctx, "list", prefix, ok, nil, func(ctx context.Context) ([]Status, error) {
		return d.List(ctx, prefix)
	})
}

// Break implements Breaker, with ErrUnsupported if the driver does not.
func (c *Client) Break(ctx context.Context, name string) error {
	d, ok := c.driver.(Breaker)
	_, err := query(c, ctx, "break", name, ok, checkName(name), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, d.Break(ctx, name)
	})
	return err
}

// Sweep implements Sweeper, with ErrUnsupported if the driver does not.
func (c *Client) Sweep(ctx context.Context, idle time.Duration) (int, error) {
	d, ok := c.driver.(Sweeper)
	var invalid error
	if idle <= 0 {
		invalid = fmt.Errorf("%w: the idle time is %v, allowed is more than 0", ErrInvalid, idle)
	}
	return query(c, ctx, "sweep", "", ok, invalid, func(ctx context.Context) (int, error) {
		return d.Sweep(ctx, idle)
	})
}

// query runs an operator's request: bounded by ctx alone, because listing or
// sweeping a large store takes the time it takes.
func query[T any](c *Client, ctx context.Context, op, name string, supported bool, invalid error,
	f func(context.Context) (T, error)) (T, error) {
	// Counted, so that Close closes the driver only after it.
	c.tasks.begin()
	defer c.tasks.finished()
	var zero T
	err := invalid
	switch {
	case !supported:
		err = ErrUnsupported
	case err == nil && c.lifeErr() != nil:
		err = ErrClosed
	case err == nil:
		err = ctx.Err()
	}
	if err != nil {
		return zero, opError(op, name, err)
	}
	value, err := guarded(&c.tasks, c.caps.Backend, ctx, nil, MaxTTL, func(detached *call) (T, error) {
		bounded, cancel := context.WithCancel(detached)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return f(bounded)
	}, nil)
	if err != nil {
		return zero, opError(op, name, err)
	}
	return value, nil
}

// lifeErr returns ErrClosed once Close has been called.
func (c *Client) lifeErr() error {
	if c.life.Err() != nil {
		return ErrClosed
	}
	return nil
}
