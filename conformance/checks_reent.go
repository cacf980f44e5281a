package conformance

import (
	"context"
	"errors"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/patterns"
)

func reentChecks() []Check {
	return []Check{
		{ID: "reent/counted", Clause: "H2", Mandatory: true, Run: reentCounted,
			Rule: "through patterns.Reentrant, an owner gets its own name again, others do not, and the name is free after the last Unlock and not before"},
	}
}

func reentCounted(c *C) {
	c.unjudged("the wrapper hands out one lock of the store several times, which is what it is for")
	a, b := c.open("A"), c.open("B")
	name, ttl := c.Name("x"), distlock.TTL(c.long())
	r := patterns.Reentrant(a.locker)
	ctx, cancel := c.patiently()
	defer cancel()
	mine, other := patterns.WithOwner(ctx), patterns.WithOwner(ctx)
	take := func(who context.Context, try bool) distlock.Lock {
		f := r.Lock
		if try {
			f = r.TryLock
		}
		l, err := f(who, name, ttl)
		if err != nil {
			c.Failf("an owner was refused %q, which nobody else holds: %v", name, err)
		}
		return l
	}
	held := func(when string) {
		if got := b.try(name, ttl); !got.busy() {
			c.unheard(got.err, "B", name)
			c.Failf("B tried for %q %s; the answer must match ErrHeld, it was %s", name, when, describe(got.err))
		}
		if _, err := r.TryLock(other, name, ttl); !errors.Is(err, distlock.ErrHeld) {
			c.unheard(err, "another owner", name)
			c.Failf("another owner of the same Locker tried for %q %s; the answer must match ErrHeld, it was %s", name, when, describe(err))
		}
	}
	first, second, third := take(mine, false), take(mine, true), take(context.WithoutCancel(mine), false)
	if first.Token() != second.Token() || second.Token() != third.Token() {
		c.Failf("one owner's locks of %q have the tokens %d, %d and %d; they are one acquisition", name, first.Token(), second.Token(), third.Token())
	}
	held("which an owner has taken three times")
	for i, l := range []distlock.Lock{second, first, first} { // one of them twice
		if err := l.Unlock(ctx); err != nil {
			c.Failf("Unlock number %d of an owner that had taken %q three times returned: %v", i+1, name, err)
		}
	}
	held("of which two of three locks have been unlocked, one of them twice")
	if err := third.Unlock(ctx); err != nil {
		c.Failf("the last Unlock of %q returned: %v", name, err)
	}
	b.mustTry(name, "whose owner has unlocked all three locks", ttl).free()
	if _, err := r.TryLock(ctx, name, ttl); !errors.Is(err, distlock.ErrInvalid) {
		c.Failf("a context without an owner: the error must match ErrInvalid, it is %s", describe(err))
	}
}
