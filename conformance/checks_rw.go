package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

func rwChecks() []Check {
	return []Check{
		{ID: "rw/exclusive", Clause: "P5", Mandatory: true, Run: rwExclusive,
			Rule: "readers hold a name together, a writer alone, and tokens rise over both"},
		{ID: "rw/writer-served", Clause: "P5", Mandatory: true, Run: rwWriterServed,
			Rule: "a writer gets its lock among readers that come and go without a gap"},
		{ID: "rw/dead-holder", Clause: "P5", Mandatory: true, Run: rwDeadHolder,
			Rule: "readers are let in up to the bound; what a reader or a writer that has died held is free for all with the end of its lease"},
	}
}

func rwExclusive(c *C) {
	const readers = 3
	a, b := c.open("A"), c.open("B")
	name := c.Name("x")
	readA, writeA := a.readWrite(readers)
	readB, writeB := b.readWrite(readers)
	first := a.take(readA, name, patience, "nobody has ever held it")
	second := b.take(readB, name, patience, "only a reader holds it")
	b.mustNotTake(writeB, name, "two readers hold it", first, second)
	a.giveBack(first)
	a.mustNotTake(writeA, name, "a reader holds it", second)
	b.giveBack(second)
	w := a.take(writeA, name, patience, "nobody holds it any more")
	b.mustNotTake(readB, name, "a writer holds it", w)
	b.mustNotTake(writeB, name, "another writer holds it", w)
	a.mustNotTake(readA, name, "a writer of the same client holds it", w)
	a.giveBack(w)
	third := b.take(readB, name, patience, "nobody holds it any more")
	if !(0 < first.Token() && first.Token() < second.Token() && second.Token() < w.Token() && w.Token() < third.Token()) {
		c.Failf("the tokens of %q do not rise: two readers, a writer and a reader got %d, %d, %d and %d", name, first.Token(), second.Token(), w.Token(), third.Token())
	}
	b.giveBack(third)
}

func rwDeadHolder(c *C) {
	const readers = 2
	ttl := c.fits(c.Unit())
	for _, writes := range []bool{false, true} {
		a, b := c.openMortal(fmt.Sprint("A", writes)), c.open(fmt.Sprint("B", writes))
		if writes && a.link == nil {
			return // a writer cannot have a fixed term
		}
		name := c.Name(fmt.Sprint("x", writes))
		dying, write := a.readWrite(readers)
		readB, writeB := b.readWrite(readers)
		opts := []distlock.Option{distlock.TTL(ttl)}
		if writes {
			dying = write
		} else {
			opts = append(opts, distlock.NoRenewal())
		}
		call := c.now()
		first := a.take(dying, name, patience, "nobody has ever held it", opts...)
		if !writes {
			second := b.take(readB, name, patience, "one of two readers holds it")
			b.mustNotTake(readB, name, "two readers hold it, which is the bound", first, second)
			b.giveBack(second)
		}
		a.cutOff()
		dies := c.now()
		back := b.take(writeB, name, dies+c.atMost(ttl)+c.timing.ExpiryLag-c.now(), fmt.Sprintf("the lease of a dead holder, of %v, is over", ttl))
		if at := c.now(); at < call+ttl-c.skew(ttl) {
			c.Failf("B got %q to write at %s, although A's lease of %v began at %s or later", name, millis(at), ttl, millis(call))
		}
		b.giveBack(back)
		b.giveBack(b.take(readB, name, patience, "nobody holds it any more"))
	}
}

func rwWriterServed(c *C) {
	const readers, turn = 3, 100 * time.Millisecond
	a, b := c.open("A"), c.open("B")
	if c.harness.Caps().Fair != Yes {
		b = a // the order is kept within a client only
	}
	name := c.Name("x")
	read, _ := a.readWrite(readers)
	_, write := b.readWrite(readers)
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	for i := range readers {
		c.Go(func() {
			c.sleep(turn * time.Duration(i) / readers)
			for ctx.Err() == nil {
				lock, err := read.Lock(ctx, name, distlock.TTL(c.Unit()))
				c.sleep(turn)
				if err == nil { // else it is the end, or what other checks are about
					_ = lock.Unlock(c.ctx)
				}
			}
		})
	}
	c.sleep(3 * turn)
	// Each reader that is before it has one turn, on a slow server with a few requests.
	lock := b.take(write, name, 10*turn+c.Unit(), "readers come and go, and one that came first is served first")
	b.giveBack(lock)
}
