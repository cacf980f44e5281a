package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
)

func inspectChecks() []Check {
	return []Check{
		{ID: "inspect/free", Clause: "O1", Mandatory: true, Run: inspectFree,
			Rule: "a name that was never held, was unlocked, has expired or was broken is not held for Inspect, and not in List; to look changes nothing"},
		{ID: "inspect/holder-text", Clause: "O1", Mandatory: true, Run: inspectHolderText,
			Rule: "the holder text comes back whole, in a refusal that tells it and by Inspect and List: any UTF-8 of up to 255 bytes, with quotes, control characters and NUL"},
	}
}

// look inspects a name, and skips the check if the driver cannot.
func (p *client) look(name string) distlock.Status {
	ctx, cancel := p.c.patiently()
	defer cancel()
	st, err := p.inspect(ctx, name)
	p.answered("Inspect", name, err)
	if st.Name != name {
		p.c.Failf("%s inspected %q, and was told of %q", p.who, name, st.Name)
	}
	return st
}

// list lists names, and skips the check if the driver cannot.
func (p *client) list(prefix string) []distlock.Status {
	ctx, cancel := context.WithTimeout(p.c.ctx, 2*patience+p.c.Slack())
	defer cancel()
	all, err := p.listed(ctx, prefix)
	p.answered("List", prefix, err)
	return all
}

func (p *client) answered(op, name string, err error) {
	switch {
	case errors.Is(err, distlock.ErrUnsupported):
		p.c.Skipf("the driver is no Inspector")
	case !p.c.Virtual() && timedOut(err): // a late machine says nothing of the driver
		p.c.Inconclusivef("%s called %s(%q), and had no answer in time: %v", p.who, op, name, err)
	case err != nil:
		p.c.Failf("%s called %s(%q), the server being in order, and it returned: %v", p.who, op, name, err)
	}
}

// sight is what was seen of a lock by Inspect, one look after the other.
type sight struct {
	h        *lease
	holder   string
	acquired time.Time
	rest     bool          // a look has told how long the lease still runs
	until    time.Duration // the store keeps the entry no longer; 0 if it is renewed
}

// check looks at the lock and compares. Its lease has to be alive.
func (s *sight) check(by *client, when string) distlock.Status {
	h, c := s.h, s.h.p.c
	deadline, before := h.Ends(), c.now()
	st := by.look(h.Name())
	after := c.now()
	if after >= deadline {
		c.Inconclusivef("by the time %s had looked at %q, its lease had ended", by.who, h.Name())
	}
	wrong := func(what string, args ...any) {
		c.Failf("%s holds %q as %q with token %d until %s; %s inspected it at %s, %s, and "+what+". The whole answer: %+v",
			append([]any{h.p.who, h.Name(), s.holder, h.Token(), millis(deadline), by.who, millis(before), when}, append(args, st)...)...)
	}
	switch {
	case !st.Held:
		wrong("was told that nobody holds it")
	case st.Holder != s.holder:
		wrong("was told that the holder is %q", st.Holder)
	case st.Token != h.Token():
		wrong("was told that its token is %d", st.Token)
	}
	s.checkRest(st, before, after, deadline, wrong)
	if s.acquired.IsZero() {
		s.acquired = st.AcquiredAt
	}
	if !sameDate(st.AcquiredAt, s.acquired) {
		wrong("was told that it was acquired at %s, before that it was %s", st.AcquiredAt.Format(time.RFC3339Nano), s.acquired.Format(time.RFC3339Nano))
	}
	return st
}

// dated is the resolution of the clock by which a store may write down when a lock was acquired.
const dated = time.Second

// sameDate compares two looks at that. A store that knows how long ago it was takes it off its clock anew with each look.
func sameDate(a, b time.Time) bool { return a.Sub(b).Abs() <= dated }

// checkRest compares how long the lease still runs with what the holder believes and
// with what it has asked for. A store may not know it, but then never does.
func (s *sight) checkRest(st distlock.Status, before, after, deadline time.Duration, wrong func(string, ...any)) {
	h, c := s.h, s.h.p.c
	grain := c.timing.TTLGranularity + c.skew(h.asked)
	most := c.restOf(h, before, after)
	if s.until > 0 {
		most = s.until - before
	}
	switch {
	case st.Remaining == 0 && (!s.rest || deadline-after <= grain):
		return
	case st.Remaining <= 0:
		wrong("was told that %v remain, although it was known before how long", st.Remaining)
	case after+st.Remaining+grain < deadline:
		wrong("was told that %v remain, although its holder may believe in it for %v more", st.Remaining, deadline-after)
	case st.Remaining > most:
		wrong("was told that %v remain; they can be %v at the most, rounding and lag included", st.Remaining, most)
	}
	s.rest = true
}

// mustShowFree demands that name is not held, for Inspect and for List, and returns
// the token that was told.
func (p *client) mustShowFree(name, what string) int64 {
	c, call := p.c, p.c.now()
	st := p.look(name)
	if st.Held || st.Holder != "" || st.Remaining != 0 {
		c.Failf("%q %s; %s inspected it at %s and had to be told that nobody holds it, but was told %+v", name, what, p.who, millis(call), st)
	}
	for _, listed := range p.list(name) {
		if listed.Name == name {
			c.Failf("%q %s, but List, called by %s at %s, returned it: %+v", name, what, p.who, millis(call), listed)
		}
	}
	return st.Token
}

func inspectFree(c *C) {
	a, b, dead := c.open("A"), c.open("B"), c.openMortal("C")
	told := make(map[string]int64)
	never := c.Name("never")
	alike := c.takeAll(a, []string{never + "/more", c.Name("NEVER"), never + " ", never + "\x00"}, "which is fresh", distlock.TTL(c.long()), distlock.Holder("of a name alike"))
	told[never] = b.mustShowFree(never, "was never held, as names alike are")
	c.freeAll(alike)
	unlocked := a.mustTry(c.Name("unlocked"), "which is fresh")
	unlocked.free()
	told[unlocked.Name()] = b.mustShowFree(unlocked.Name(), "was unlocked")

	c.unjudged("a lock is broken, whose holder may believe in it for a renewal period")
	broken := a.mustTry(c.Name("broken"), "which is fresh")
	if err := b.breakHold(c.ctx, broken.Name(), broken.Token()); err == nil {
		a.mustShowFree(broken.Name(), "was broken, by another than the one who looks, and nobody waits for it")
		b.mustPass(broken.Name(), b.mustShowFree(broken.Name(), "was broken, and nobody waits for it"))
	}

	// The store judges by its own clock. The holder does not help it.
	expired := dead.mustTry(c.Name("expired"), "which is fresh", distlock.NoRenewal(), distlock.Holder("dead"))
	expired.dies()
	for c.now() < expired.end()-c.Unit()/10 {
		before := c.now()
		st := b.look(expired.Name())
		if after := c.now(); !st.Held && after < expired.end() {
			c.Failf("C holds %q until %s, but B inspected it at %s and was told %+v", expired.Name(), millis(expired.end()), millis(before), st)
		}
		if listed := b.list(expired.Name()); len(listed) != 1 && c.now() < expired.end() {
			c.Failf("C holds %q until %s, but List for B returned at %s: %+v", expired.Name(), millis(expired.end()), millis(c.now()), listed)
		}
		c.sleep(c.Unit() / 10)
	}
	c.sleepUntil(expired.gone() + c.skew(c.Unit()))
	told[expired.Name()] = b.mustShowFree(expired.Name(), fmt.Sprintf("was held by the dead C until %s at the latest, lag and rounding included", millis(expired.gone())))
	for name, token := range told {
		b.mustPass(name, token)
	}
}

// mustPass takes a free name, of which Inspect has told the last token.
func (p *client) mustPass(name string, token int64) {
	next := p.c.pollFor(p, name, p.c.soon(), "nobody held it, and it was only looked at")
	if next.Token() <= token {
		p.c.Failf("Inspect said of %q, which was free, that its last token was %d; the next grant has %d", name, token, next.Token())
	}
	next.free()
}

// holderTexts are what encodings, protocols and columns cut or change.
var holderTexts = []string{
	"", " ", "  both ends  ", "\x00", "a\x00b", "\x00\x00end", "it's \"quoted\" `so`", `back\slash \n \x00 \u0041`, "line\nline\r\n\ttab",
	"%s %d %n %00 %2F", "1 2 3 4 5", "-1", "007", "1.50", "1e3", "0x1F", "null", "true", `{"holder":["x",1]}`, "a,b;c|d:e=f&g", "<a href='x'>&amp;</a>",
	"'; DROP TABLE locks; --", "ünïcödé ß ǅ", "日本語 한국어 עברית", "😀👩‍👩‍👧‍👦🏳️‍🌈", "\ufeffmark\u2028\u2029\u202e", "\x7f\x1b[31m\x01",
	"e\u0301 is not \u00e9", "trailing newline\n", strings.Repeat("x", distlock.MaxHolder),
	strings.Repeat("é", distlock.MaxHolder/2) + "x", "abc" + strings.Repeat("😀", distlock.MaxHolder/4), strings.Repeat("\x00", distlock.MaxHolder),
	strings.Repeat(`"`, distlock.MaxHolder), strings.Repeat(" ", distlock.MaxHolder), strings.Repeat("\U0010ffff", distlock.MaxHolder/4),
}

func inspectHolderText(c *C) {
	a, b := c.open("A"), c.open("B")
	held := make([]*lease, len(holderTexts))
	ttl := distlock.TTL(c.long())
	c.share(len(held), func(i int) {
		held[i] = a.mustTry(c.Name(fmt.Sprintf("n%03d", i)), "which is fresh", ttl, distlock.Holder(holderTexts[i]))
	})
	c.under("A6", func() {
		c.share(len(held), func(i int) { b.mustBeTold(held[i], holderTexts[i], "which it has acquired", false) })
	})
	b.look(held[0].Name()) // skips what follows if not supported
	w := b.begin(held[0].Name(), ttl, distlock.Holder("waiter"))
	c.awaitQueued(held[0].Name(), 1)
	c.share(len(held), func(i int) {
		if st := b.look(held[i].Name()); st.Holder != holderTexts[i] {
			c.Failf("A holds %q as %q (%d bytes), but by Inspect the holder is %q (%d bytes)",
				held[i].Name(), holderTexts[i], len(holderTexts[i]), st.Holder, len(st.Holder))
		}
	})
	all := b.list(c.Name("n"))
	for i, st := range all {
		if i < len(held) && st.Name == held[i].Name() && st.Holder != holderTexts[i] {
			c.Failf("A holds %q as %q, but by List the holder is %q", held[i].Name(), holderTexts[i], st.Holder)
		}
	}
	if len(all) != len(held) {
		c.Failf("A holds %d names that begin with %q, List returned %d of them", len(held), c.Name("n"), len(all))
	}
	c.freeAll(held)
	w.woken(c.soon(), "A had unlocked it").free()
}
