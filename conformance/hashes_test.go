package conformance

import (
	"hash/fnv"
	"testing"
)

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

// fnv1a stands for the library.
func TestFNV(t *testing.T) {
	short, long := fnv.New32a(), fnv.New64a()
	text := []byte("a name")
	_, _ = short.Write(text)
	_, _ = long.Write(text)
	for kind, want := range map[string]uint32{"FNV-1a": short.Sum32(), "FNV-1a of 64 bits": uint32(long.Sum64()), "its upper half": uint32(long.Sum64() >> 32)} {
		if got := hashes[kind](text); got != want {
			t.Errorf("%s: got %x, want %x", kind, got, want)
		}
	}
	first := fnv.New32()
	_, _ = first.Write(text)
	if got := hashes["FNV-1"](text); got != first.Sum32() {
		t.Errorf("FNV-1: got %x, want %x", got, first.Sum32())
	}
}
