package conformance

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/adler32"
	"hash/crc32"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

func beyondBMP(base string) []string {
	return append(with(base, "\U0001f600", "\U0001f601", "\U0001f602", "\U0001f363", "\U0001f37a", "\U00010000", "\U00010ffff", "\U0010fffd",
		"\U00020000", "\U00020001", "\U0002f800", "\u4e3d", "\U00010400", "\U00010428", "\U0001d400", "A", "\ufffd", "\uffff", "?", "??", "????"),
		base+"\U0001f1e9\U0001f1ea", base+"\U0001f1e9\U0001f1ee", base+"\U0001f44d", base+"\U0001f44d\U0001f3fb", base+"\U0001f44d\U0001f3ff",
		base+`\ud83d\ude00`, base+`\u{1f600}`, base+"\u00f0\u009f\u0098\u0080")
}

func scripts(base string) []string {
	var names []string
	for _, set := range []string{
		"stra\u00dfe strasse STRASSE stra\u1e9ee stra\u017fse",                // sharp s, capital sharp s, long s
		"i I \u0131 \u0130 i\u0307 \u00ef",                                    // the Turkish ones
		"\uff21 \uff41 A a \u1d2c \u24b6 \u00aa \u212b \u00c5 A\u030a \u00e5", // wide, small, circled, ring
		"\u00e9 e\u0301 e \u00e8 e\u0300 \u1eb9\u0301 e\u0323\u0301 e\u0301\u0323",
		"\u03c3 \u03c2 \u03a3 \u03b1 \u0391 \u0430 \u0410 \u1f00 \u03ac \u03b1\u0301 \u2126 \u03a9 \u03c9", // Greek, and a Cyrillic look-alike
		"\u0456 \u0406 \u0457 \u0456\u0308 \u0451 \u0435 \u0415 \u0401",
		"\u304b \u30ab \uff76 \u304c \u304b\u3099 \u30ac \uff76\uff9e \u306f \u3070 \u3071 \u3063 \u3064 \u30fc", // kana by kind, width, voice, size
		"\uac00 \u1100\u1161 \u3131\u314f",                                                                       // Hangul, composed and not
		"\u13a0 \uab70 \u10d0 \u1c90 \u10a0 \u2d00 \u01c4 \u01c5 \u01c6 d\u017e",                                 // cases of Cherokee and Georgian, digraphs
		"1 \u00b9 \u2081 \u2460 \uff11 \u0661 \u0967 \u2160 \u00bd 1/2 1\u20442",                                 // digits
		"fi \ufb01 ffi \ufb03 ae \u00e6 \u00c6 oe \u0153 ij \u0133 th \u00fe \u00f0 d l \u0142 o \u00f8",
		"n \u00f1 n\u0303 \u0144 \u014b c \u00e7 c\u0327 ch ll",
		"\u0627 \u0623 \u0622 \u0621 \u0649 \u064a \u06cc \u0643 \u06a9 \u0647 \u0629 \u0640\u0627", // Arabic and Persian
		"\u05d0 \ufb21 \u05e9\u05c1 \ufb2a \u05e9",
		"- \u2010 \u2011 \u2012 \u2013 \u2014 \u2212 \u00ad \uff0d _ \uff3f ' \u2019 \u02bc",
		"e \ue000 \uf8ff \U000f0000 \U0010fffd \u0378 \ufdd0 \ufff9", // for private use, not assigned, no characters
		"a\u200d a\u200c a\u200b a\ufe0f a\u2060 a\u034f a\u061c a\u200e a\u202e a\u00ad a",
	} {
		for _, text := range strings.Fields(set) {
			names = append(names, base+"u-"+text)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// middle returns names of the greatest length that differ in one byte each, in places
// where columns, path elements, blocks and indexes end.
func middle(base string) []string {
	whole := padded(base, distlock.MaxName)
	names := []string{whole}
	for _, at := range []int{len(base), 40, 63, 64, 100, 127, 128, 160, 190, 191, 192, 200, 223, 224, 253, 254, 255, 256, 257, 258, 300, 319, 320, 383, 384, 448, 500, 510, 511} {
		if at < len(base) {
			continue
		}
		b := []byte(whole)
		b[at] = '#'
		names = append(names, string(b))
	}
	return names
}

func terminated(base string) []string {
	return append(with(base, "x\x00y", "x\x00z", "x\x00", "x\x00\x00", "x", "x\ny", "x\nz", "x;y", "x;z", "x?y", "x?z", "x#y", "x#z", "x&y", "x&z",
		"x y", "x+y", "x%20y", "x%2By", "x%00", "x%", "x%2", "x%25", "x%2525", "A", "%41", `\x41`, `\u0041`, "&#65;", "&amp;", "&", "=41", "x\x1ay", "x\x1az",
		"x:1", "x:2", "x@1", "x,y", "x,z", "x|y", "x|z", "x\ty", "x\tz", "x\x7fy", "x\x08y", "x\x1by"),
		base+strings.Repeat("\x00", 40), base+strings.Repeat("\x00", 41), base+strings.Repeat(" ", 40), base+strings.Repeat(" ", 41))
}

// hashes are functions to 32 bits, as used where keys have to be short.
var hashes = map[string]func([]byte) uint32{
	"CRC-32":            func(s []byte) uint32 { return crc32.ChecksumIEEE(s) },
	"CRC-32C":           func(s []byte) uint32 { return crc32.Checksum(s, crc32.MakeTable(crc32.Castagnoli)) },
	"Adler-32":          adler32.Checksum,
	"FNV-1":             times(2166136261, 16777619, true),
	"FNV-1a":            func(s []byte) uint32 { return fnv1a[uint32](s, 2166136261, 16777619) },
	"FNV-1a of 64 bits": func(s []byte) uint32 { return uint32(fnv1a[uint64](s, 14695981039346656037, 1099511628211)) },
	"its upper half":    func(s []byte) uint32 { return uint32(fnv1a[uint64](s, 14695981039346656037, 1099511628211) >> 32) },
	"31 (Java)":         times(0, 31, false),
	"33 (djb2)":         times(5381, 33, false),
	"33 xor (djb2a)":    times(5381, 33, true),
	"131 (BKDR)":        times(0, 131, false),
	"65599 (sdbm)":      times(0, 65599, false),
	"Murmur3":           murmur3,
	"MD5":               func(s []byte) uint32 { h := md5.Sum(s); return binary.BigEndian.Uint32(h[:]) },
	"SHA-1":             func(s []byte) uint32 { h := sha1.Sum(s); return binary.BigEndian.Uint32(h[:]) },
	"SHA-256":           func(s []byte) uint32 { h := sha256.Sum256(s); return binary.BigEndian.Uint32(h[:]) },
	"its end":           func(s []byte) uint32 { h := sha256.Sum256(s); return binary.BigEndian.Uint32(h[len(h)-4:]) },
	"the end of MD5":    func(s []byte) uint32 { h := md5.Sum(s); return binary.BigEndian.Uint32(h[len(h)-4:]) },
	"the end of SHA-1":  func(s []byte) uint32 { h := sha1.Sum(s); return binary.BigEndian.Uint32(h[len(h)-4:]) },
}

// Race detection would look at each byte of a million names, which takes seconds. They are in a buffer of one goroutine.

// times makes one of the hashes that multiply, and add or xor.
func times(seed, factor uint32, xor bool) func([]byte) uint32 {
	return func(s []byte) uint32 { return multiplied(s, seed, factor, xor) }
}

//go:norace
func multiplied(s []byte, h, factor uint32, xor bool) uint32 {
	for _, b := range s {
		if h *= factor; xor {
			h ^= uint32(b)
		} else {
			h += uint32(b)
		}
	}
	return h
}

// fnv1a is what hash/fnv computes, which -race makes five times as slow.
//
//go:norace
func fnv1a[T uint32 | uint64](s []byte, h, prime T) T {
	for _, b := range s {
		h = (h ^ T(b)) * prime
	}
	return h
}

// murmur3 is MurmurHash3_x86_32 with seed 0.
//
//go:norace
func murmur3(b []byte) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	h, length := uint32(0), len(b)
	for ; len(b) >= 4; b = b[4:] {
		h ^= bits.RotateLeft32(binary.LittleEndian.Uint32(b)*c1, 15) * c2
		h = (h<<13|h>>19)*5 + 0xe6546b64
	}
	if len(b) > 0 {
		var tail [4]byte
		copy(tail[:], b)
		h ^= bits.RotateLeft32(binary.LittleEndian.Uint32(tail[:])*c1, 15) * c2
	}
	h ^= uint32(length)
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

// collisions returns names in pairs that share a hash, computed once in a process:
// their prefix is as random as that of a check.
var collisions = sync.OnceValue(func() map[string][]string {
	pairs := make(map[string][]string)
	prefix := fmt.Sprintf("conf-%016x-", rand.Uint64())
	for kind, hash := range hashes {
		pairs[kind] = pairsOf(hash, prefix, "", 2)
	}
	// Both of these are 31-hashes that Java's users have met.
	pairs["31 (Java)"] = append(pairs["31 (Java)"], prefix+"AaAa", prefix+"BBBB", prefix+"AaBB")
	return pairs
})

// longCollisions are a pair of long names for each hash. A driver may hash long names only, and keep what they begin and
// end with. To find them takes some seconds of a processor, so a run that looks at samples does without.
var longCollisions = sync.OnceValue(func() (names []string) {
	begin, end := padded(fmt.Sprintf("conf-%016x-", rand.Uint64()), 280), strings.Repeat("t", 200)
	for _, hash := range hashes {
		pair := pairsOf(hash, begin, "", 1)
		for i := range pair {
			pair[i] += end
		}
		if hash([]byte(pair[0])) != hash([]byte(pair[1])) { // it has more of a state than 32 bits
			pair = pairsOf(hash, begin, end, 1)
		}
		names = append(names, pair...)
	}
	return names
})

// pairsOf returns n pairs of names that share a hash: 32 bits have one among some
// 80,000 random names. -race makes maps and texts slow, so there are none: the names have one buffer, and a table,
// that forgets some of them, has their numbers.
//
//go:norace
func pairsOf(hash func([]byte) uint32, prefix, suffix string, n int) []string {
	const size = 1 << 18
	var pairs []string
	name, seed := []byte(prefix+strings.Repeat("0", 16)+suffix), rand.Uint64()
	spell := func(i uint32) []byte { // different names for different numbers, random to the hash
		v := (seed + uint64(i)) * 0x9e3779b97f4a7c15
		v = (v ^ v>>32) * 0xd6e8feb86659fd93
		spellHex(name[len(prefix):], v^v>>32)
		return name
	}
	seen := make([]uint64, size) // a hash and the number, from 1 on
	for i := uint32(1); len(pairs) < 2*n; i++ {
		h := hash(spell(i))
		at := &seen[h%size]
		other := *at
		if *at = uint64(h)<<32 | uint64(i); other == 0 || uint32(other>>32) != h {
			continue
		}
		// The twin leaves: a third name of this hash would put it into a second pair,
		// and the check would lock it twice.
		*at = 0
		pairs = append(pairs, string(name))
		pairs = append(pairs, string(spell(uint32(other))))
	}
	return pairs
}

//go:norace
func spellHex(to []byte, v uint64) {
	for i := range 16 {
		to[i] = "0123456789abcdef"[v>>(60-4*i)&15]
	}
}

func hashCollisions(c *C) {
	kinds := collisions()
	var all []string
	for kind, names := range kinds {
		c.Logf("%s: %s", kind, quoted(names))
		all = append(all, names...)
	}
	if !c.samples() {
		all = append(all, longCollisions()...)
	}
	c.apart(append(all, base64Twins()...))
}

// base64Twins are names of which the base64, at each of the three places that a text can begin at, differs in case only.
func base64Twins() []string {
	var names []string
shifts:
	for shift := range 3 {
		prefix := fmt.Sprintf("conf-%016x-%s", rand.Uint64(), strings.Repeat("s", shift))
		seen := make(map[string]string)
		for a := range rune(95) {
			for b := range rune(95) {
				name := prefix + string(a+' ') + string(b+' ') + "x"
				key := strings.ToLower(base64.StdEncoding.EncodeToString([]byte(name)))
				if twin, ok := seen[key]; ok {
					names = append(names, twin, name, padded(twin, 300), padded(name, 300))
					continue shifts
				}
				seen[key] = name
			}
		}
	}
	return names
}

func manyNames(c *C) {
	n := 300 // no more than a few seconds' worth on a server
	if c.Virtual() {
		n = 1200 // of 65,536 hashes, two are the same in all but one of 60,000 runs
	}
	a, b := c.open("A"), c.open("B")
	rng := c.Rand()
	var names []string
	for i := range n {
		names = append(names, c.Name(fmt.Sprintf("many %d %x", i, rng.Uint64())))
	}
	for i, h := range c.holdAll(names, a) {
		if i%10 == 0 {
			c.stillHeld(b, h, nil)
		}
		h.free()
	}
}

// joined opens two name spaces, one the beginning of the other, and the first once more.
func joined(c *C) {
	c.unjudged("one name is two locks here, which the oracles cannot tell apart")
	a, b, again := c.openIn("A", "a"), c.openIn("B", "ab"), c.openIn("C", "a")
	ttl := distlock.TTL(c.long())
	name := c.Name("x")
	for _, pair := range [][2]string{{"b" + name, name}, {"b:" + name, name}, {"b/" + name, name}, {"b-" + name, name}, {"b_" + name, name}, {"b." + name, name}, {name, name}, {fullLength("b" + name), fullLength(name)}} {
		h := a.mustTry(pair[0], "which is fresh", ttl)
		other := b.mustTry(pair[1], fmt.Sprintf("which is fresh; in a name space that is a beginning of this one, %s is held", oracle.Quote(pair[0])), ttl)
		other.free()
		again.mustBeBusy(pair[0], h)
		b.mustTry(pair[1], "which has been unlocked", ttl).free()
		h.free()
	}
	c.joinedBeside(a, again, b)
	long := padded(name, distlock.MaxName-1) // the name of the space has to fit in besides
	c.freeAll(c.takeAll(b, []string{long + "1", long + "2"}, "which is fresh", ttl))
}

// joinedBeside has what is beside a lock meet one of the same name in the name space of b: its waiter, and a Sweep. The name space of
// these is the beginning of that.
func (c *C) joinedBeside(a, again, b *client) {
	d, ttl := c.openIn("D", "ab"), distlock.TTL(c.long())
	name, last := c.Name("beside"), int64(0)
	h := a.mustTry(name, "which is fresh", ttl)
	w := again.begin(name, ttl)
	c.sleep(quiet)
	other := b.mustTry(name, "which nobody holds in this name space; in one that is a beginning of it, A holds it, and C waits for it", ttl)
	next := d.begin(name, ttl)
	c.sleep(quiet)
	other.free()
	other = next.woken(c.soon(), "B had unlocked it in this name space")
	h.free()
	w.woken(c.soon(), "A had unlocked it in this name space").free()
	c.breaks("O4")
	for range 2 {
		c.rises(&last, other, "a Sweep in a name space that is a beginning of this one")
		other.free()
		c.sleep(c.poll())
		ctx, cancel := c.patiently()
		_, _ = a.sweepIdle(ctx, time.Nanosecond) // if the driver can
		cancel()
		other = b.mustTry(name, "which was unlocked; another name space was swept", ttl)
	}
	c.rises(&last, other, "a Sweep in a name space that is a beginning of this one")
	c.breaks("")
	other.free()
}
