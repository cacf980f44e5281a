package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock/driver"
)

// A name is a node under the prefix, and every claim on it is a child of that:
//
//	/distlock/orders%2F42/claim-6f1d…32 digits…9c-0000000007
//
// By the owner in its name, a node is found again if the reply to its creation was lost.
const (
	claimPrefix = "claim-"
	ownerDigits = 32
)

// node is a claim as the list of children shows it.
type node struct {
	name  string // of the child, without the path
	owner string
	seq   int32
	czxid int64 // 0 where the numbers alone say the order
}

// parseNode reports whether a child is a claim. Others may keep their nodes
// there, too: Curator its locks, an operator a note.
func parseNode(name string) (node, bool) {
	rest, ok := strings.CutPrefix(name, claimPrefix)
	if !ok || len(rest) < ownerDigits+1+10 || rest[ownerDigits] != '-' {
		return node{}, false
	}
	// Not "what follows the last hyphen": the servers count in 32 bits, and the
	// number after 2147483647 is -2147483648, with a hyphen of its own.
	seq, err := strconv.ParseInt(rest[ownerDigits+1:], 10, 32)
	return node{name: name, owner: rest[:ownerDigits], seq: int32(seq)}, err == nil
}

// queueOf returns the claims among the children, by their numbers.
func queueOf(children []string) []node {
	queue := make([]node, 0, len(children))
	for _, name := range children {
		if n, ok := parseNode(name); ok {
			queue = append(queue, n)
		}
	}
	slices.SortFunc(queue, func(a, b node) int { return cmp.Compare(a.seq, b.seq) })
	return queue
}

// queue reads the claims on a name, first come, first. The servers number them by arrival,
// in the order of their zxids. A container that was removed and made again starts at 0,
// but it is only ever removed when it is empty.
//
// The numbers end with 2147483647. A claim on its way at the same time as another may get
// a negative one, but each that comes alone gets the last number again. So from there on
// only the servers know the order: one more request for each claim asks when it was made.
func (s *session) queue(ctx context.Context, parent string) ([]node, error) {
	children, err := s.children(ctx, parent)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	all := queueOf(children)
	if len(all) < 2 || all[0].seq >= 0 && all[len(all)-1].seq < math.MaxInt32 {
		return all, nil
	}
	queue := make([]node, 0, len(all))
	for _, n := range all {
		stat, err := s.exists(ctx, parent+"/"+n.name)
		if err != nil {
			return nil, err
		}
		if stat == nil {
			continue // it has just left
		}
		n.czxid = stat.Czxid
		queue = append(queue, n)
	}
	slices.SortFunc(queue, func(a, b node) int { return cmp.Compare(a.czxid, b.czxid) })
	return queue, nil
}

// makeName makes the node of the name. Where the servers deny that, it may still be there,
// made by an administrator.
func (c *claim) makeName(ctx context.Context) (denied, err error) {
	err = c.session.makeNode(ctx, c.parent(), zk.FlagContainer)
	c.bare = err == nil || unanswered(err)
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return err, nil
	case errors.Is(err, zk.ErrNodeExists):
		return nil, nil
	}
	return nil, err
}

// removeName deletes the node of the name if we may have made it, and nothing was ever in
// it: the servers remove a container only after its last child.
func (c *claim) removeName(ctx context.Context) error {
	if !c.bare {
		return nil
	}
	s, parent := c.session, c.parent()
	stat, err := s.exists(ctx, parent)
	if err == nil && stat != nil && stat.Cversion == 0 && stat.DataLength == 0 {
		_, err = request(ctx, s, s.remove(parent))
	}
	if fate := driver.FateOf(err); fate == driver.Answered || fate == driver.Again {
		err = nil // others are in it, we may not, or it is gone
	}
	c.bare = err != nil
	return err
}

// taken reports whether there is a claim on a name, and writes nothing. A TryLock that joins
// the queue keeps others from a name that is free until its node is deleted: two hundred of
// them would refuse each other for seconds.
//
// Where there seems to be none, the servers decide when we join. Where there is one, our
// server may just be behind.
func (s *session) taken(ctx context.Context, parent string) (bool, error) {
	stat, err := s.exists(ctx, parent)
	if err != nil || stat == nil || stat.NumChildren == 0 {
		return false, err
	}
	if err := s.catchUp(ctx); err != nil {
		return false, err
	}
	children, err := s.children(ctx, parent)
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return len(queueOf(children)) > 0, err
}

func (d *store) nodeOf(name string) string { return d.opts.Prefix + "/" + encode(name) }

// stemOf returns what the paths of the claims of an owner begin with.
func stemOf(parent, owner string) string { return parent + "/" + claimPrefix + owner + "-" }

func (c *claim) parent() string {
	return c.stem[:len(c.stem)-len("/")-len(claimPrefix)-ownerDigits-len("-")]
}

func (c *claim) owner() string {
	return c.stem[len(c.stem)-ownerDigits-len("-") : len(c.stem)-len("-")]
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
// does not make: a node of somebody else.
func decode(element string) (string, bool) {
	name, err := url.PathUnescape(element)
	return name, err == nil && name != "" && encode(name) == element
}

// knownNames remembers the nodes of names seen lately. A claim on such a name begins
// with its own node. On another name, it makes the parent first. That costs one request
// more, but finding out by a failure that the parent is missing costs two. The memory
// is no more than a guess: a server removes an empty container at any time, and two
// names may share an entry.
type knownNames [4096]atomic.Pointer[string]

var knownSeed = maphash.MakeSeed()

func (k *knownNames) entry(path string) *atomic.Pointer[string] {
	return &k[maphash.String(knownSeed, path)%uint64(len(k))]
}

func (k *knownNames) has(path string) bool {
	known := k.entry(path).Load()
	return known != nil && *known == path
}

func (k *knownNames) add(path string) { k.entry(path).Store(&path) }

func (k *knownNames) remove(path string) { k.entry(path).Store(nil) }
