package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

func namesChecks() []Check {
	const apart = "different names are different locks: holding all of them at once works, and each Unlock frees its own"
	var all []Check
	for _, k := range []struct {
		id, what string
		run      func(*C)
	}{
		{"case-accent", "upper and lower case, accents, the two Unicode spellings of one letter", distinct(caseAccent)},
		{"spaces", "white space at either end, control characters", distinct(spaces)},
		{"path", "slashes: no name contains another", distinct(paths)},
		{"escape", "what an encoding may use, quotes, wildcards, braces", distinct(escapes)},
		{"numbers", "names that are nothing but a number, and read as the same one", func(c *C) { c.apart(numbers(c.Rand())) }},
		{"internals", "names like those that a driver makes for its own use", distinct(internals)},
		{"long", "every length up to 512 bytes, also if only the last byte differs", distinct(long)},
		{"beyond-bmp", "characters beyond U+FFFF, which some collations take for one, and some encodings cannot have", distinct(beyondBMP)},
		{"scripts", "cases, widths and compositions of other scripts, which collations and normal forms fold", distinct(scripts)},
		{"middle", "names that differ in one byte, wherever it stands", distinct(middle)},
		{"terminated", "texts that end early for a driver that stops at a NUL, a newline, a separator or an escape", distinct(terminated)},
		{"hashes", "names of which a common hash of 32 bits is the same", hashCollisions},
		{"many", "so many that two of them share a hash of 16 bits", manyNames},
	} {
		all = append(all, Check{ID: "names/" + k.id, Clause: "N1", Mandatory: true, Run: k.run, Rule: apart + " (" + k.what + ")"})
	}
	return append(all, []Check{
		{ID: "names/bytes", Clause: "N1", Mandatory: true, Run: oddBytes,
			Rule: "a name that is empty, not UTF-8 or too long is refused with ErrInvalid; every other one is taken as it is"},
		{ID: "names/joined", Clause: "N1", Needs: []Cap{capNamespaces}, Run: joined,
			Rule: "the same name in two name spaces is two locks, and the two are not just joined: \"a\" and \"bc\" are not \"ab\" and \"c\"; nor do they share a queue, or what a Sweep removes"},
	}...)
}

// distinct makes a check of a set of names: all can be held at the same time.
func distinct(set func(base string) []string) func(*C) {
	return func(c *C) { c.apart(set(c.Name(""))) }
}

// apart takes all names of a set, by two clients in turns, and then lets a third
// have one after the other: the freed name must be free, all others must not.
func (c *C) apart(names []string) {
	a, b, d := c.open("A"), c.open("B"), c.open("C")
	held := c.holdAll(names, a, b)
	var ended []string
	for _, i := range c.Rand().Perm(len(names)) {
		c.stillHeld(d, held[i], ended) // what an earlier Unlock has done to it shows here
		held[i].free()
		ended = append(ended, names[i])
		held[i] = d.mustTry(names[i], "which has been unlocked, while other names are held", distlock.TTL(c.long()))
	}
	for i, h := range held {
		c.stillHeld(a, h, names[:i])
		h.free()
	}
}

// holdAll has clients take names in turns, one after the other.
func (c *C) holdAll(names []string, peers ...*client) (held []*lease) {
	for i, name := range names {
		p := peers[i%len(peers)]
		got := p.try(name, distlock.TTL(c.long()))
		if got.err != nil {
			c.met(p, got, name, held)
		}
		if got.Name() != name {
			c.Failf("the lock on %s says that its name is %s", oracle.Quote(name), oracle.Quote(got.Name()))
		}
		held = append(held, got.lease)
	}
	return held
}

// stillHeld probes a held name after locks on others have been ended.
func (c *C) stillHeld(p *client, h *lease, ended []string) {
	until := h.end()
	a := p.try(h.Name())
	if a.err == nil {
		c.Logf("since it was taken, only other names have been unlocked, among them: %s", quoted(ended))
		c.intruded(a, h, until, "")
	}
	if !a.busy() {
		c.refused(p, a, h.Name(), "which is held; the answer must match ErrHeld")
	}
}

// met ends the check over a name that was refused while others are held. It unlocks
// one after the other until the name is free, and so finds the one that it meets.
func (c *C) met(p *client, refused answer, name string, held []*lease) {
	if !refused.busy() {
		c.refused(p, refused, name, fmt.Sprintf("which is valid UTF-8 of %d bytes and fresh", len(name)))
	}
	for _, h := range slices.Backward(held) {
		h.free()
		if a := p.try(name, distlock.TTL(c.long())); a.err == nil {
			c.breach("N1", "%s was told that %s is held, which nobody has ever held; it was free as soon as %s had been unlocked: the two names are one lock",
				p.who, oracle.Quote(name), oracle.Quote(h.Name()))
		}
	}
	c.breach("N1", "%s was told that %s is held; nobody has ever held it, and it was not free either when all other names had been unlocked",
		p.who, oracle.Quote(name))
}

func quoted(names []string) string {
	var q []string
	for _, n := range names {
		q = append(q, oracle.Quote(n))
	}
	return strings.Join(q, ", ")
}

// with puts the random base before and behind every text, so that the texts stand
// at the end and at the beginning of a name.
func with(base string, texts ...string) []string {
	var names []string
	for _, t := range texts {
		names = append(names, base+t)
	}
	for _, t := range texts {
		names = append(names, t+base)
	}
	return names
}

func caseAccent(base string) []string {
	return append(with(base, "lock", "Lock", "LOCK", "l\u00f6ck", "lo\u0308ck"),
		base+"\u0131", base+"i", base+"\u0130", base+"stra\u00dfe", base+"strasse", base+"\ufb01", base+"fi", base+"\u212a", base+"k")
}

func spaces(base string) []string {
	return with(base, "x", "x ", "x  ", "x\t", " x", "x\u00a0", "x\x00", "x\n", "x\r\n", "\ufeffx", "x\u200b", "x\x7f", "x\u0080", "x\u0085", "x\u009f", "x\u2028", "x\u2029")
}

func paths(base string) []string {
	return []string{
		base + "p", base + "p/q", base + "p/q/r", base + "p/", base + "/p", base + "p//q", base + "p/./q", base + "p/../p",
		base + ".", base + "..", base + "/", base + "zookeeper", "/" + base + "p", "//" + base + "p", "./" + base + "p", "../" + base + "p",
		base, base + "/p/q", base[:len(base)-1],
	}
}

func escapes(base string) []string {
	return with(base, "a/b", "a%2Fb", "a%2fb", "a%252Fb", "a__0x2f__b", "a:b", "a_b", "a-b", "a.b", "{a}b", "{a}c", "{}a", "}{", "{a", "a}", "{{a}}", "{a}{b}", "a{b}", "{a}", "{}",
		"a*?[b]", "a'b", `a";--`, `a";`, "a", "a$c", `a\b`, `a\\b`, "a+b", "a=b", "a~b", "a$b", "a#b", "a|b", "YS9i", "612f62")
}

// numbers returns names without any prefix of the run: so they are random, and long.
func numbers(rng *rand.Rand) []string {
	n := 1<<53 + 2*rng.Int64N(1<<53) // beyond what a float can tell from the next
	short := fmt.Sprint(100_000_000 + rng.Int64N(900_000_000))
	d := fmt.Sprint(n)
	return []string{d, fmt.Sprint(n + 1), "0" + d, "+" + d, "-" + d, d + ".0", d + ".", d + "e0", " " + d, d + "_0", fmt.Sprintf("0x%x", n), fmt.Sprintf("%x", n), fmt.Sprintf("0%o", n),
		short + "0000000", short + "e7", short + "E7", short + ".0e7", short, "00" + short, short + ".00", short + "n", short + "L"}
}

func internals(base string) []string {
	return with(base, "n", "n:fence", "n:token", "n:queue", "n:q", "n:wait", "n:owner", "n:notify", "{n}", "{n}:token", "n/lock-",
		"n/lock-0000000001", "n-lock-0000000001", "lock-0000000001", "n/0", "n\x00", "n\x01", "n#1", "n@1", "_c_n",
		"n.tmp", "n.new", "n.lock", "n.bak", "n~", ".n", "n.json", "lock:n", "n:lock", "n:waiters", "n:counter", "n:seq")
}

// long returns names of telling lengths: around the limits of columns, path elements
// and hashes, in pairs that differ only in the last byte or only in the first.
func long(base string) []string {
	var names []string
	for _, n := range []int{len(base) + 2, 63, 64, 65, 127, 128, 190, 191, 192, 254, 255, 256, 257, 511, distlock.MaxName} {
		names = append(names, padded(base, n-1)+"1", padded(base, n-1)+"2")
	}
	tail := strings.Repeat("t", distlock.MaxName-len(base)-1)
	wide := strings.Repeat("\U0001f512", (distlock.MaxName-len(base))/4)
	short := wide[:len(wide)-4]
	return append(names, "1"+base+tail, "2"+base+tail, base+wide, base+short+"\U0001f513", base+short)
}

func oddBytes(c *C) {
	a := c.open("A")
	ctx, cancel := c.patiently()
	defer cancel()
	for _, name := range []string{
		"", "\xff", c.Name("\xff"), c.Name("a\xc3"), c.Name("\xed\xa0\x80"), c.Name("\xc0\xaf"), padded(c.Name(""), distlock.MaxName+1),
	} {
		for _, op := range []oracle.Op{oracle.OpTry, oracle.OpLock} {
			got := a.acquire(ctx, op, name, distlock.TTL(c.long()))
			c.mustBeInvalid(got.err, fmt.Sprintf("%s(%q) of %d bytes", op, name, len(name)))
		}
	}
	// Every other byte is fine, alone and in company.
	var names []string
	for b := rune(0); b < 0x80; b++ {
		names = append(names, c.Name(string(b)))
	}
	names = append(names, c.Name("\u0080"), c.Name("\uffff"), c.Name("\U0010ffff"), c.Name("\ufffd"))
	held := c.holdAll(names, a)
	c.freeAll(held)
}

// without returns the elements of a without those of b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}
