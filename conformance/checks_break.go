package conformance

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
)

func breakChecks() []Check {
	return []Check{
		{ID: "break/seen-token", Clause: "O2", Mandatory: true, Run: breakSeenToken,
			Rule: "Break with another token than the holder's, be it alike in a part, or of a name that nobody holds, is ErrLost and changes nothing"},
		{ID: "break/waiters-stay", Clause: "O3", Mandatory: true, Run: breakWaitersStay,
			Rule: "a broken lock goes to the next waiter, as after an Unlock: nobody loses a place, and nobody overtakes"},
		{ID: "break/only-that", Clause: "O2", Mandatory: true, Run: breakOnlyThat,
			Rule: "Break ends no other lock, neither of the same client nor on names that are alike: a name counts in whole"},
	}
}

// breaks calls Break, and skips the check if the driver cannot.
func (p *client) breaks(name string, token int64) error {
	ctx, cancel := p.c.patiently()
	defer cancel()
	err := p.breakHold(ctx, name, token)
	if errors.Is(err, distlock.ErrUnsupported) {
		p.c.Skipf("the driver is no Breaker")
	}
	return err
}

// ended ends h by a Break of p, if that is asked for and the driver can, or else by Unlock. It returns how.
func (h *lease) ended(p *client, broken bool) string {
	ctx, cancel := h.p.c.patiently()
	defer cancel()
	if broken {
		err := p.breakHold(ctx, h.Name(), h.Token())
		if err == nil {
			return fmt.Sprintf("the lock of %s was broken", h.p.who)
		}
		p.c.unheard(err, p.who, h.Name()) // it may be broken all the same
	}
	h.free()
	return h.p.who + " had unlocked it"
}

// mustBreak breaks a held lock and returns when.
func (p *client) mustBreak(h *lease) time.Duration {
	c, end := p.c, h.end()
	err := p.breaks(h.Name(), h.Token())
	switch {
	case err == nil:
	case c.now()+c.skew(h.asked) >= end:
		c.Inconclusivef("%s came too late to break %q, whose lease ended at %s: %v", p.who, h.Name(), millis(end), err)
	default:
		c.unheard(err, p.who, h.Name())
		c.breach("O2", "%s holds %q with token %d until %s; %s broke it with that token, and Break returned: %v", h.p.who, h.Name(), h.Token(), millis(end), p.who, err)
	}
	return c.now()
}

// mustNotBreak demands that Break with this token is told ErrLost.
func (p *client) mustNotBreak(name string, token int64, why string) {
	if err := p.breaks(name, token); !errors.Is(err, distlock.ErrLost) {
		if err != nil {
			p.c.unheard(err, p.who, name)
		}
		p.c.Failf("%s called Break(%q) with token %d, %s; the answer must match ErrLost, it was %s", p.who, name, token, why, describe(err))
	}
}

// mustBeVictim demands that the holder of a broken lock is told so by everything.
func (h *lease) mustBeVictim() {
	c := h.p.c
	ctx, cancel := c.patiently()
	defer cancel()
	if err := h.Extend(ctx, h.asked); !errors.Is(err, distlock.ErrLost) {
		c.Failf("%s's lock of %q was broken, but its Extend returned %s; it must match ErrLost", h.p.who, h.Name(), describe(err))
	}
	if err := h.unlock(); !errors.Is(err, distlock.ErrLost) {
		c.Failf("%s's lock of %q was broken, but its Unlock returned %s; it must match ErrLost", h.p.who, h.Name(), describe(err))
	}
}

// mustFollow takes a name that was broken.
func (p *client) mustFollow(victim *lease) *lease {
	next := p.mustTry(victim.Name(), fmt.Sprintf("which Break has freed, its answer having come; %s had held it", victim.p.who))
	if next.Token() <= victim.Token() {
		p.c.Failf("%s held %q with token %d and was broken; the next grant has token %d, which must be greater", victim.p.who, victim.Name(), victim.Token(), next.Token())
	}
	return next
}

func breakSeenToken(c *C) {
	a, b, third, dead := c.open("A"), c.open("B"), c.open("C"), c.openMortal("D")
	name := c.Name("x")
	third.mustNotBreak(name, 1, "although nobody has ever held the name")
	old := a.mustTry(name, "which is fresh")
	old.free()
	third.mustNotBreak(name, old.Token(), "the last one granted, which was unlocked")
	beside := a.mustTry(c.Name("X"), "which is fresh")
	h := b.mustTry(name, "which A has unlocked")
	ended := dead.mustTry(c.Name("ended"), "which is fresh", distlock.NoRenewal())
	ended.dies()
	tokens := map[int64]string{
		old.Token():    "that of a holder before",
		h.Token() + 1:  "which was not granted yet",
		math.MaxInt64:  "the greatest there is",
		beside.Token(): "that of another name",
		1:              "the least there is",
	}
	if h.Token() > 1 {
		tokens[h.Token()-1] = "one less than the holder's"
	}
	for _, bit := range []int{8, 16, 31, 32, 33, 40, 48, 53, 62} {
		tokens[h.Token()^1<<bit] = fmt.Sprintf("which differs from that of the holder in the bit %d", bit)
	}
	if h.Token() < math.MaxInt64/10 {
		tokens[h.Token()*10] = "ten times that of the holder"
	}
	delete(tokens, h.Token()) // two names may have the same
	maps.DeleteFunc(tokens, func(token int64, _ string) bool { return token <= 0 })
	for token, why := range tokens {
		third.mustNotBreak(name, token, fmt.Sprintf("%s; the holder's, B's, is %d", why, h.Token()))
		third.mustBeBusyAfter(name, h, fmt.Sprintf("Break was called with token %d, %s", token, why))
		c.mustHold(h, "Break was called with other tokens only")
	}
	c.sleepUntil(ended.gone() + c.skew(c.Unit()))
	third.mustNotBreak(ended.Name(), ended.Token(), fmt.Sprintf("whose holder is dead, its lease being over since %s", millis(ended.gone())))
	c.sleep(c.Unit() / 4)
	c.mustKeep([]*lease{h, beside}, third, "Break was called with other tokens only, more than a TTL ago")
	third.mustBreak(h)
	third.mustNotBreak(name, h.Token(), "for the second time")
	beside.free()
}

func breakWaitersStay(c *C) {
	c.breaksLocks()
	a, b, third := c.open("A"), c.open("B"), c.open("C")
	var peers []*client
	for i := range 4 {
		peers = append(peers, c.open(fmt.Sprint("W", i+1)))
	}
	name, ttl := c.Name("x"), distlock.TTL(c.long())
	h := a.mustTry(name, "which is fresh", ttl)
	b.mustNotBreak(name, h.Token()+1, "not the holder's") // before anybody waits in vain
	fair := c.servesInOrder()
	var queue []*pending
	order := ""
	for _, p := range peers {
		if w := p.begin(name, ttl); fair {
			queue, order = c.enqueue(queue, w), "O3"
		} else {
			queue = append(queue, w)
		}
	}
	c.awaitQueued(name, len(peers))
	for len(queue) > 0 {
		broken := c.now()
		if len(queue)%2 == 0 { // a hand-over after each, so that the two meet
			b.mustBreak(h)
		} else {
			h.free()
		}
		won, left := c.serve(queue, order, c.soon(), fmt.Sprintf("the lock of %s on it was broken, or unlocked, at %s", h.p.who, millis(broken)))
		if won.Token() <= h.Token() {
			c.Failf("%s was granted %q with token %d after a Break; %s had token %d before", won.p.who, name, won.Token(), h.p.who, h.Token())
		}
		if got := third.try(name); got.err == nil {
			c.Failf("C's TryLock was granted %q at %s although %s holds it since %s", name, millis(got.ret), won.p.who, millis(won.ret))
		}
		_ = h.unlock() // ErrLost if it was broken
		h, queue = won, left
	}
	h.free()
	c.registers(100, func(h *lease) string {
		b.mustBreak(h)
		_ = h.unlock() // ErrLost
		return "the lock of " + h.p.who + " was broken"
	})
}

func breakOnlyThat(c *C) {
	a, b := c.open("A"), c.open("B")
	var held []*lease
	for _, label := range []string{"x", "X", "x ", "x/", "x/y", "/x", "x%", "xx", "%", "_", "*", "x\x00", "other"} {
		held = append(held, a.mustTry(c.Name(label), "which is fresh"))
	}
	for _, of := range []*lease{held[0], held[4]} {
		for _, name := range []string{of.Name() + "\t", " " + of.Name(), strings.ToUpper(of.Name()), of.Name()[:len(of.Name())-1] + "?", of.Name() + "\x00\x00", of.Name() + "//"} {
			b.mustNotBreak(name, of.Token(), fmt.Sprintf("that of %q, which A holds; nobody holds this name", of.Name()))
		}
	}
	c.mustKeep(held, b, "Break was called with names that are alike, which nobody holds")
	victims, rest := []*lease{held[0], held[8], held[9], held[10]}, append(held[1:8:8], held[11:]...)
	since := c.now()
	for _, h := range victims {
		b.mustBreak(h)
	}
	for _, h := range victims {
		h.mustLearn(since, fmt.Sprintf("Break(%q) returned nil", h.Name()))
	}
	c.mustKeep(rest, b, "names that are alike were broken")
	c.sleepUntil(since + c.Unit()*5/4)
	c.mustKeep(rest, b, "names that are alike were broken more than a TTL ago")
	c.freeAll(rest)
}
