package zklock

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A name is a node under the prefix, and every claim on it is a child of that:
//
//	/distlock/orders%2F42/claim-6f1d…32 digits…9c-0000000007
//
// The owner in the child's name is what finds a node again whose creation was
// never confirmed.
const (
	claimPrefix = "claim-"
	ownerDigits = 32
)

// node is a claim as the list of children shows it.
type node struct {
	name  string // of the child, without the path
	owner string
	seq   int32
}

// parseNode reports whether a child is a claim. Whatever else is there is none of
// our business: Curator's locks, say, or an operator's notes.
func parseNode(name string) (node, bool) {
	rest, ok := strings.CutPrefix(name, claimPrefix)
	if !ok || len(rest) < ownerDigits+1+10 || rest[ownerDigits] != '-' {
		return node{}, false
	}
	// Not "what follows the last hyphen": the servers count in 32 bits, and the
	// number after 2147483647 is -2147483648, with a hyphen of its own.
	seq, err := strconv.ParseInt(rest[ownerDigits+1:], 10, 32)
	return node{name, rest[:ownerDigits], int32(seq)}, err == nil
}

// lineup returns the claims among the children, first come, first. The servers
// number them by arrival, in the same order as the zxids at which they were
// created. Numbers are compared by their distance, which is right across the
// overflow as long as fewer than 2^31 claims wait; a container that was removed
// and made again starts at 0, but is only ever removed when it is empty.
func lineup(children []string) []node {
	line := make([]node, 0, len(children))
	for _, name := range children {
		if n, ok := parseNode(name); ok {
			line = append(line, n)
		}
	}
	slices.SortFunc(line, func(a, b node) int { return cmp.Compare(a.seq-b.seq, 0) })
	return line
}

// inLine returns how many claims among the children come before own, and the last of
// them: what lineup would tell, without the sorting. The number is -1 if own is not
// there.
func inLine(children []string, own string) (before string, place int) {
	me, ok := parseNode(own)
	if !ok {
		return "", -1
	}
	there, nearest := false, int32(math.MinInt32)
	for _, name := range children {
		n, ok := parseNode(name)
		switch d := n.seq - me.seq; {
		case !ok:
		case name == own:
			there = true
		case d < 0:
			place++
			if d >= nearest {
				before, nearest = name, d
			}
		}
	}
	if !there {
		return "", -1
	}
	return before, place
}

// encode makes a name one element of a path: letters, digits and a few others
// stand for themselves, every other byte is %XX. The first byte is never a dot,
// since "." and ".." are not elements.
func encode(name string) string {
	var b strings.Builder
	b.Grow(len(name))
	for i := range len(name) {
		if c := name[i]; plain(c) && (i > 0 || c != '.') {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_.:@", c) >= 0
}

// decode is the inverse of encode. It reports false for an element that encode
// does not make: a node that is not ours.
func decode(element string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(element); i++ {
		c := element[i]
		if c == '%' {
			if i+3 > len(element) {
				return "", false
			}
			n, err := strconv.ParseUint(element[i+1:i+3], 16, 8)
			if err != nil {
				return "", false
			}
			c, i = byte(n), i+2
		}
		b.WriteByte(c)
	}
	name := b.String()
	return name, name != "" && encode(name) == element
}
