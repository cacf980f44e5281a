package conformance

import (
	"encoding/binary"
	"hash/adler32"
	"hash/fnv"
	"testing"
)

// Those that are written here for the sake of speed are those of the library.
func TestHashesAreTheirs(t *testing.T) {
	for _, s := range []string{"", "a", "a name", "conf-3a40bbe317ba7b71 \u00e9"} {
		one, other, long := fnv.New32(), fnv.New32a(), fnv.New64a()
		for _, h := range []interface{ Write([]byte) (int, error) }{one, other, long} {
			_, _ = h.Write([]byte(s)) // never fails
		}
		for kind, want := range map[string]uint32{
			"Adler-32": adler32.Checksum([]byte(s)), "FNV-1": one.Sum32(), "FNV-1a": other.Sum32(),
			"FNV-1a of 64 bits": uint32(long.Sum64()), "its upper half": binary.BigEndian.Uint32(long.Sum(nil)),
		} {
			if got := hashes[kind]([]byte(s)); got != want {
				t.Errorf("%s of %q: got %#x, want %#x", kind, s, got, want)
			}
		}
	}
}

// A name that stands twice is locked twice, and a right driver is accused.
func TestCollisionsAreDifferentNames(t *testing.T) {
	hash := hashes["Adler-32"] // has three names of one hash far more often than the others, and the more pairs, the more
	for range 100 {
		seen := make(map[string]bool)
		for _, name := range pairsOf(hash, "p-", "", 32) {
			if seen[name] {
				t.Fatalf("%q stands in two pairs", name)
			}
			seen[name] = true
		}
	}
}
