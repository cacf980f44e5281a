package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/distlock-go/distlock"
)

var _ distlock.Operator = (*Client)(nil)

// shownToken returns a token of the store as users see it.
func (c *Client) shownToken(token int64) (int64, error) {
	base := c.opts.TokenBase
	if token > math.MaxInt64-base {
		return 0, fmt.Errorf("the token %d of %s and the token base %d exceed the largest int64", token, c.caps.Backend, base)
	}
	return token + base, nil
}

// shownStatus returns st with its token as users see it; 0 means that there is none. A
// driver that counts the waiters need not say that there are any.
func (c *Client) shownStatus(st distlock.Status) (distlock.Status, error) {
	st.Wanted = st.Held && (st.Wanted || st.Waiters > 0)
	if st.Token == 0 {
		return st, nil
	}
	var err error
	st.Token, err = c.shownToken(st.Token)
	return st, err
}

// Inspect implements distlock.Operator, with ErrUnsupported if the driver does not.
func (c *Client) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	d, ok := c.driver.(Inspector)
	return query(c, ctx, maxCall, "inspect", name, ok, checkName(name), func(ctx context.Context) (distlock.Status, error) {
		st, err := d.Inspect(ctx, name)
		if err != nil {
			return st, err
		}
		return c.shownStatus(st)
	})
}

// List implements distlock.Operator, with ErrUnsupported if the driver does not.
func (c *Client) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	d, ok := c.driver.(Inspector)
	return query(c, ctx, distlock.MaxTTL, "list", prefix, ok, nil, func(ctx context.Context) ([]distlock.Status, error) {
		sts, err := d.List(ctx, prefix)
		for i := 0; i < len(sts) && err == nil; i++ {
			sts[i], err = c.shownStatus(sts[i])
		}
		return sts, err
	})
}

// Break implements distlock.Operator, with ErrUnsupported if the driver does not.
func (c *Client) Break(ctx context.Context, name string, token int64) error {
	d, ok := c.driver.(Breaker)
	var invalid error
	if base := c.opts.TokenBase; token <= base {
		invalid = fmt.Errorf("%w: the token is %d, allowed is more than %d", distlock.ErrInvalid, token, base)
	}
	_, err := query(c, ctx, maxCall, "break", name, ok, cmp.Or(checkName(name), invalid), func(ctx context.Context) (struct{}, error) {
		err := d.Break(ctx, name, token-c.opts.TokenBase)
		if errors.Is(err, distlock.ErrLost) {
			err = fmt.Errorf("%w: nobody holds it with token %d any more", distlock.ErrLost, token)
		}
		return struct{}{}, err
	})
	return err
}

// Sweep implements distlock.Operator, with ErrUnsupported if the driver does not.
func (c *Client) Sweep(ctx context.Context, idle time.Duration) (int, error) {
	d, ok := c.driver.(Sweeper)
	var invalid error
	if idle <= 0 {
		invalid = fmt.Errorf("%w: the idle time is %v, allowed is more than 0", distlock.ErrInvalid, idle)
	}
	removed := 0 // also by a call that was repeated: it may have gone a part of the way
	_, err := query(c, ctx, distlock.MaxTTL, "sweep", "", ok, invalid, func(ctx context.Context) (struct{}, error) {
		n, err := d.Sweep(ctx, idle)
		removed += n
		return struct{}{}, err
	})
	return removed, err
}

// query runs an operator's request. What is about one name has the limit of other calls. Listing
// or sweeping a large store takes the time it takes: it is bounded by ctx alone.
func query[T any](c *Client, ctx context.Context, limit time.Duration, op, name string, supported bool, invalid error,
	f func(context.Context) (T, error)) (T, error) {
	mustHaveContext(ctx, op)
	// Counted, so that Close closes the driver only after it.
	c.tasks.begin()
	defer c.tasks.finished()
	var zero T
	err := invalid
	switch {
	case !supported:
		err = distlock.ErrUnsupported
	case err == nil && c.lifeErr() != nil:
		err = distlock.ErrClosed
	case err == nil:
		err = ctx.Err()
	}
	if err != nil {
		return zero, opError(op, name, err)
	}
	bounded := c.call(ctx, c.calls, limit)
	defer bounded.end()
	var value T
	repeats, cancel := context.WithTimeout(bounded, maxCall) // it is not begun again after that
	defer cancel()
	err = Insist(repeats, func() error {
		return c.guard(bounded, name, func() (err error) { value, err = f(bounded); return err })
	})
	if err != nil {
		return zero, opError(op, name, withEnd(ctx, bounded.explain(err)))
	}
	return value, nil
}
