package patterns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

// Semaphore returns a Locker that lets n acquisitions hold a name at a time. Each is a
// permit: a lock on one of n slots, so the permit of a holder that has died comes
// back with the end of its TTL. n must be the same in all processes: where it is not,
// the largest counts. An n of less than 1, or of more than 100,000, is ErrInvalid in every call, and so is
// a name that leaves no room within MaxName for what the slots and the queue add: five bytes, six if n is above 10,000.
//
// The token of a permit rises with every grant of its slot, and says nothing of other
// slots: n holders are as it should be, and none of them is stale. A store that is to
// refuse stale writes keeps a fence for each slot; see [Permit].
//
// A waiter takes whatever slot is free first. One acquisition at a time waits for the
// slots, the others queue behind it; a newcomer that finds a free slot may take it while
// the queue moves on. A waiter that dies at the head of the queue holds it up for its TTL
// at the most. Locks of l on name/0 to name/(n-1) are the slots, and name/next is the
// queue: they show in List, and must not be used otherwise; Inspect of the name itself finds it
// free. Close closes l.
func Semaphore(l distlock.Locker, n int) distlock.Locker {
	mustHave("semaphore", l)
	s := slots{l: l, n: n}
	return &wrapper{l, afterReleases(s.permit)}
}

// Permit is the Lock of a [Semaphore], which [distlock.As] finds.
type Permit struct {
	distlock.Lock
	name string
	slot int
}

// Name implements Lock.
func (p *Permit) Name() string { return p.name }

// Slot returns which of the n slots the permit is for, from 0. No other holder of the
// name has it at the same time, so it can name a resource of which there are n.
func (p *Permit) Slot() int { return p.slot }

// Unwrap returns the lock on the slot, for As.
func (p *Permit) Unwrap() distlock.Lock { return p.Lock }

// permit takes one slot.
func (s slots) permit(ctx context.Context, c call) (distlock.Lock, error) {
	if err := s.check(c); err != nil {
		return nil, err
	}
	// A permit is no lock that its owner may take once more, by Reentrant.
	ctx = WithOwner(ctx)
	// If one is free, nobody has to be waited for. A slot that is late is waited for with the others.
	lock, slot, err := s.tryAny(ctx, c)
	if c.waitsFor(ctx, err) {
		tried := err
		var next distlock.Lock
		if next, err = s.queue(ctx, c); err == nil {
			lock, slot, err = s.waitAny(ctx, c)
			c.free(next)
		}
		err = adding(err, tried, distlock.ErrHeld)
	}
	if err != nil {
		return nil, opError(c.op, c.name, err)
	}
	return &Permit{lock, c.name, slot}, nil
}

// waitsFor is goesOn for a call that has only tried the slots. A store that has given no answer to that has none to more, most
// likely, and a call that begins anew would wait for it once more.
func (c call) waitsFor(ctx context.Context, err error) bool {
	var silence interface{ Timeout() bool }
	return c.goesOn(ctx, err) && (errors.Is(err, distlock.ErrHeld) || !errors.As(err, &silence) || !silence.Timeout())
}

// adding returns err, with another error that it does not say if that is one of a class.
func adding(err, other, class error) error {
	if err == nil || !errors.Is(other, class) || errors.Is(err, class) {
		return err
	}
	return both(err, other)
}

// goesOn reports whether a call waits for the slots after it has tried them: they are held, or the store cannot serve for now.
// Lock then knows for how long that is.
func (c call) goesOn(ctx context.Context, err error) bool {
	return err != nil && c.waits() && ctx.Err() == nil && !errors.Is(err, distlock.ErrInvalid) && !errors.Is(err, distlock.ErrClosed)
}

// slots are n locks for each name, which stand for n equal places.
type slots struct {
	l   distlock.Locker
	n   int
	all bool // a lock is on all of them, and renewed
}

func (s slots) check(c call) error {
	// The slots are asked in goroutines, where a panic ends the process. An option that panics does so
	// here first, and its caller can recover.
	if c.options().NoRenewal && s.all {
		return c.invalid("a write lock cannot have a fixed term")
	}
	if s.n < 1 || s.n > maxSlots {
		return c.invalid("there are %d slots, allowed are 1 to %d", s.n, maxSlots)
	}
	if longest := distlock.MaxName - len("/") - max(len(next), len(strconv.Itoa(s.n-1))); len(c.name) > longest {
		return c.invalid("the name has %d bytes, allowed are %d where it has slots and a queue", len(c.name), longest)
	}
	return notEmpty(c.op, c.name)
}

// maxSlots bounds what a call may ask for side by side: each slot is a lock.
const maxSlots = 100_000

// next is what the name of the queue ends in.
const next = "next"

func (s slots) name(name string, slot int) string { return name + "/" + strconv.Itoa(slot) }

// queue makes the caller the one that may wait for slots. Its lock is renewed, also for a
// caller that asks for a fixed term.
func (s slots) queue(ctx context.Context, c call) (distlock.Lock, error) {
	lock, err := c.take(ctx, c.name+"/"+next, append(slices.Clone(c.opts), func(o *distlock.CallOptions) { o.NoRenewal = false })...)
	if err != nil {
		return nil, reason(err)
	}
	return lock, nil
}

// afterReleases returns acquire, which waits for what it has begun to free before it returns: else a TryLock that comes then would
// be refused for that. It does so for lateAfter, or for lateEnd once ctx has ended: a store that hangs keeps no lock from the
// one that has got it, and the rest goes on in the background.
func afterReleases(acquire func(context.Context, call) (distlock.Lock, error)) func(context.Context, call) (distlock.Lock, error) {
	return func(ctx context.Context, c call) (distlock.Lock, error) {
		c.freeing = new(sync.WaitGroup)
		lock, err := acquire(ctx, c)
		freed := make(chan struct{})
		go func() { c.freeing.Wait(); close(freed) }()
		late := time.NewTimer(lateAfter)
		defer late.Stop()
		select {
		case <-freed:
			return lock, err
		case <-late.C:
			return lock, err
		case <-ctx.Done():
		}
		late.Reset(lateEnd)
		select {
		case <-freed:
		case <-late.C:
		}
		return lock, err
	}
}

// free frees a lock beside the call. A release that takes longer than the call waits for it goes on in the background.
func (c call) free(lock distlock.Lock) {
	c.freeing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lateAfter)
		defer cancel()
		_ = lock.Unlock(ctx)
	})
}

// giveBack frees what the next n outcomes bring.
func (c call) giveBack(outcomes <-chan attempt, n int) {
	c.freeing.Go(func() {
		for range n {
			if other := <-outcomes; other.err == nil {
				c.free(other.lock)
			}
		}
	})
}

// attempt is the outcome of a call for one slot.
type attempt struct {
	slot int
	lock distlock.Lock
	err  error
}

// ask calls take for one slot, and sends what comes of it to outcomes.
func (s slots) ask(name string, slot int, outcomes chan<- attempt, take func(name string) (distlock.Lock, error)) {
	lock, err := take(s.name(name, slot))
	if err != nil {
		err = fmt.Errorf("slot %d: %w", slot, reason(err))
	}
	outcomes <- attempt{slot, lock, err}
}

// each calls take for all slots, side by side.
func (s slots) each(name string, take func(name string) (distlock.Lock, error)) chan attempt {
	outcomes := make(chan attempt, s.n) // so that nobody has to listen to the end
	for slot := range s.n {
		go s.ask(name, slot, outcomes, take)
	}
	return outcomes
}

const (
	// lateAfter is how long slots have for their answers before others are asked, too: they
	// may be on a server of its own that hangs. It is more than a request takes, and less than
	// a caller minds.
	lateAfter = 100 * time.Millisecond

	// lateEnd is the same for a caller with a context that has ended.
	lateEnd = 10 * time.Millisecond

	// failedAgain is how long after a failure the slots that have failed are asked again: seldom enough for a store that
	// refuses, and soon beside a restart.
	failedAgain = time.Second
)

// tryAny takes a slot if one is free. It asks one after the other, as the first is mostly
// free. Where answers are late it asks twice as many each time, so that soon all are asked and a store that hangs costs
// the time of one request. Its error matches ErrHeld if any was held: the failure of one slot says nothing of
// the others. A call that will wait for any slot does not wait here for those that are late if one
// was held.
func (s slots) tryAny(ctx context.Context, c call) (distlock.Lock, int, error) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	take := func(name string) (distlock.Lock, error) { return s.l.TryLock(inner, name, c.opts...) }
	outcomes := make(chan attempt, s.n) // so that nobody has to listen to the end
	late := time.NewTimer(lateAfter)
	defer late.Stop()
	first := rand.N(s.n) // so that they do not all begin with a slot that is taken
	var held, failed error
	asked, answered, now, beside := 0, 0, 1, 1
	more := func() bool { return asked == 0 || asked < s.n && ctx.Err() == nil }
	for more() || answered < asked {
		for ; now > 0 && more(); now-- {
			go s.ask(c.name, (first+asked)%s.n, outcomes, take)
			asked++
		}
		late.Reset(lateAfter)
		select {
		case got := <-outcomes:
			answered, now = answered+1, 1
			switch {
			case got.err == nil:
				c.giveBack(outcomes, asked-answered)
				return got.lock, got.slot, nil
			case errors.Is(got.err, distlock.ErrHeld):
				held = sooner(held, got.err)
			default:
				failed = got.err
			}
		case <-late.C:
			beside *= 2
			now = beside
			if asked == s.n && held != nil && c.waits() {
				c.giveBack(outcomes, asked-answered)
				return nil, 0, held
			}
		}
	}
	if held != nil && ctx.Err() == nil {
		return nil, 0, held
	}
	return nil, 0, both(adding(cmp.Or(failed, ctx.Err()), ctx.Err(), ctx.Err()), held)
}

// sooner returns the refusal of the slot that may be free first, of two.
func sooner(a, b error) error {
	var first, second *distlock.HeldError
	if errors.As(a, &first) && errors.As(b, &second) && first.Remaining > 0 && (second.Remaining == 0 || first.Remaining < second.Remaining) {
		return a
	}
	return b
}

// waitAny waits for the first slot that is free. It waits in the queues of all of them,
// and so is woken by any release, without asking again and again. One that has failed, as its server
// restarts, is asked again after a while: it may be free when the others are not. waitAny fails when all
// slots have failed.
func (s slots) waitAny(ctx context.Context, c call) (distlock.Lock, int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	take := func(name string) (distlock.Lock, error) { return s.l.Lock(ctx, name, c.opts...) }
	outcomes, waiting := s.each(c.name, take), s.n
	var failed []int
	var err error
	again := time.NewTimer(failedAgain)
	defer again.Stop()
	for waiting > 0 {
		select {
		case got := <-outcomes:
			waiting--
			if got.err == nil {
				cancel()
				c.giveBack(outcomes, waiting) // granted in the same moment
				return got.lock, got.slot, nil
			}
			failed = append(failed, got.slot)
			if err == nil || !errors.Is(err, distlock.ErrHeld) { // that another was seen to have a slot stays known
				err = got.err
			}
			again.Reset(failedAgain)
		case <-again.C:
			if c.goesOn(ctx, err) {
				for _, slot := range failed {
					go s.ask(c.name, slot, outcomes, take)
				}
				waiting, failed = waiting+len(failed), nil
			}
		}
	}
	return nil, 0, err
}
