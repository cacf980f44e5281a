package patterns

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
)

// Prefix returns a Locker over the names of l that start with prefix: a name space of its
// own for a tenant or an application. End it in a separator that no prefix has within, as "t1/": the names of "t10" start with "t1", too.
// The locks it returns have the name asked for, and
// Inspect, List and Break know only what lies inside; Sweep, which would go beyond that, is
// ErrUnsupported. Prefix and name together must not be longer than MaxName. Close closes l.
func Prefix(l distlock.Locker, prefix string) distlock.Locker {
	mustHave("prefix", l)
	return &prefixed{wrapper{l, func(ctx context.Context, c call) (distlock.Lock, error) {
		if err := notEmpty(c.op, c.name); err != nil {
			return nil, err
		}
		lock, err := c.take(ctx, prefix+c.name, c.opts...)
		if err != nil {
			return nil, err
		}
		return &renamed{lock, c.name}, nil
	}}, prefix}
}

// prefixed is a view of a Locker.
type prefixed struct {
	wrapper
	prefix string
}

var _ distlock.Operator = (*prefixed)(nil)

// notEmpty refuses an empty name: it must not become a legal one by what is added to it.
func notEmpty(op, name string) error {
	if name == "" {
		return opError(op, name, fmt.Errorf("%w: the name is empty, allowed are 1 to %d bytes", distlock.ErrInvalid, distlock.MaxName))
	}
	return nil
}

// Inspect implements distlock.Operator.
func (p *prefixed) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	if err := notEmpty("inspect", name); err != nil {
		return distlock.Status{}, err
	}
	st, err := distlock.Inspect(ctx, p.Locker, p.prefix+name)
	st.Name = name
	return st, err
}

// List implements distlock.Operator.
func (p *prefixed) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	sts, err := distlock.List(ctx, p.Locker, p.prefix+prefix)
	for i := range sts {
		sts[i].Name = strings.TrimPrefix(sts[i].Name, p.prefix)
	}
	return sts, err
}

// Break implements distlock.Operator.
func (p *prefixed) Break(ctx context.Context, name string, token int64) error {
	if err := notEmpty("break", name); err != nil {
		return err
	}
	return distlock.Break(ctx, p.Locker, p.prefix+name, token)
}

// Sweep implements distlock.Operator.
func (p *prefixed) Sweep(context.Context, time.Duration) (int, error) {
	return 0, opError("sweep", "", distlock.ErrUnsupported)
}

// renamed is a lock under the name that its caller knows.
type renamed struct {
	distlock.Lock
	name string
}

// Name implements distlock.Lock.
func (r *renamed) Name() string { return r.name }

// Unwrap returns the lock inside, for As.
func (r *renamed) Unwrap() distlock.Lock { return r.Lock }
