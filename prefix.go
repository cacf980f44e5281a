package distlock

import (
	"context"
	"fmt"
	"strings"
)

// Prefix returns a Locker over the names of l that start with prefix: a name space of its
// own for a tenant or an application. The locks it returns have the name asked for, and
// Inspect and List know only what lies inside. Prefix and name together must not be
// longer than MaxName. Close closes l.
func Prefix(l Locker, prefix string) Locker { return &prefixed{l, prefix} }

// prefixed is a view of a Locker.
type prefixed struct {
	Locker
	prefix string
}

var (
	_ Inspector = (*prefixed)(nil)
	_ Breaker   = (*prefixed)(nil)
)

// Lock implements Locker.
func (p *prefixed) Lock(ctx context.Context, name string, opts ...Option) (Lock, error) {
	return p.inside(name, func(full string) (Lock, error) { return p.Locker.Lock(ctx, full, opts...) })
}

// TryLock implements Locker.
func (p *prefixed) TryLock(ctx context.Context, name string, opts ...Option) (Lock, error) {
	return p.inside(name, func(full string) (Lock, error) { return p.Locker.TryLock(ctx, full, opts...) })
}

func (p *prefixed) inside(name string, take func(full string) (Lock, error)) (Lock, error) {
	if err := notEmpty("lock", name); err != nil {
		return nil, err
	}
	lock, err := take(p.prefix + name)
	if err != nil {
		return nil, err
	}
	return &renamed{lock, name}, nil
}

// notEmpty refuses an empty name: it must not become a legal one by the prefix.
func notEmpty(op, name string) error {
	if name == "" {
		return opError(op, name, fmt.Errorf("%w: the name is empty, allowed are 1 to %d bytes", ErrInvalid, MaxName))
	}
	return nil
}

// Inspect implements Inspector.
func (p *prefixed) Inspect(ctx context.Context, name string) (Status, error) {
	if err := notEmpty("inspect", name); err != nil {
		return Status{}, err
	}
	st, err := Inspect(ctx, p.Locker, p.prefix+name)
	st.Name = name
	return st, err
}

// List implements Inspector.
func (p *prefixed) List(ctx context.Context, prefix string) ([]Status, error) {
	sts, err := List(ctx, p.Locker, p.prefix+prefix)
	for i := range sts {
		sts[i].Name = strings.TrimPrefix(sts[i].Name, p.prefix)
	}
	return sts, err
}

// Break implements Breaker.
func (p *prefixed) Break(ctx context.Context, name string, token int64) error {
	if err := notEmpty("break", name); err != nil {
		return err
	}
	return Break(ctx, p.Locker, p.prefix+name, token)
}

// renamed is a lock under the name that its caller knows.
type renamed struct {
	Lock
	name string
}

// Name implements Lock.
func (r *renamed) Name() string { return r.name }

// Unwrap returns the lock inside, for As.
func (r *renamed) Unwrap() Lock { return r.Lock }

// As returns the first lock of type T in the chain that begins with l and goes on
// with what Unwrap returns, as errors.As does for errors. It is how to reach what
// only one backend's locks can do, also through wrappers such as Prefix:
//
//	if el, ok := distlock.As[*etcdlock.Lock](lock); ok {
//		txn = txn.If(el.Cmp())
//	}
func As[T Lock](l Lock) (T, bool) {
	for {
		if t, ok := l.(T); ok {
			return t, true
		}
		u, ok := l.(interface{ Unwrap() Lock })
		if !ok {
			var none T
			return none, false
		}
		l = u.Unwrap()
	}
}
