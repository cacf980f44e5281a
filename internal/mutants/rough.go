package mutants

import (
	"context"
	"errors"
	"sync"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// roughMutants go wrong where a request is repeated, or is not answered, and where locks
// are wrapped.
func roughMutants() []Mutant {
	return []Mutant{
		{
			Name: "CopyFrees", Flaw: "removes the entry when it is told a second time that its own was unlocked",
			Seen:     "DEL as the answer to a timeout",
			KilledBy: []Kill{{"fault/repeated-request", "Unlock of its lock before had arrived a second time"}},
			design:   inside(flaw{try: tryAndNote, release: releaseAgain}),
		},
		{
			Name: "WaitsForDriver", Flaw: "returns from TryLock when its driver has, and not when its context ends",
			KilledBy: []Kill{{"fault/never-returns", "has not returned"}},
			design:   wrapper{try: tryToTheEnd}.in(),
		},
		{
			Name: "OneLock", Flaw: "wraps all locks of a client into one",
			KilledBy: []Kill{{"wrap/own-lock", "the same lock"}},
			design:   design{driver: wrappingOnce},
		},
	}
}

func releaseAgain(ctx context.Context, c *claim) error {
	again := false
	c.driver.with(c.asked.Name, func(e *entry) { again = e.former == c.asked.Owner })
	if again {
		return remove(ctx, c.driver.mem, c.asked.Name)
	}
	err := c.inner.Release(ctx)
	c.driver.with(c.asked.Name, func(e *entry) {
		if e.owner == c.asked.Owner {
			e.former, e.ended = e.owner, true
		}
	})
	return err
}

func tryToTheEnd(ctx context.Context, call lockFunc, name string, opts []distlock.Option) (distlock.Lock, error) {
	l, err := call(context.WithoutCancel(ctx), name, opts...)
	if err != nil && ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	return l, err
}

// wrappingOnce keeps what it has wrapped first.
func wrappingOnce(e *env) driver.Driver {
	var once sync.Once
	var first distlock.Lock
	return e.inside(flaw{wrap: func(h *driver.Handle, _ *claim) distlock.Lock {
		once.Do(func() { first = h })
		return first
	}})
}
