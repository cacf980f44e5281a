package etcdlock

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"math/bits"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/distlock-go/distlock"
)

const (
	maxPrefix = 512 // bytes

	// terminator ends a name within a key. Neither prefixes nor encoded names
	// contain it, so the keys of one name are exactly those that begin with prefix,
	// name and terminator.
	terminator = "!"
)

// checkPrefix returns p as keys begin with it. It ends with a slash, and names are
// encoded without one, so no key belongs to two prefixes.
func checkPrefix(p string) (string, error) {
	if len(p) > maxPrefix || !utf8.ValidString(p) || strings.Contains(p, terminator) {
		return "", fmt.Errorf("%w: the prefix is %q, allowed are up to %d bytes of valid UTF-8 without %q",
			distlock.ErrInvalid, p, maxPrefix, terminator)
	}
	return slashed(cmp.Or(p, DefaultPrefix)), nil
}

func slashed(p string) string {
	if p == "" {
		return ""
	}
	return strings.TrimSuffix(p, "/") + "/"
}

// queue returns what the keys of all claims on name begin with. PathEscape works
// byte by byte and escapes the slash, the terminator and the percent sign, so
// different names have different queues, and none begins with another.
func (s *store) queue(name string) string { return s.prefix + url.PathEscape(name) + terminator }

// name returns the name that a key stands for, and false for a foreign key.
func (s *store) name(key string) (string, bool) {
	escaped, _, ok := strings.Cut(strings.TrimPrefix(key, s.prefix), terminator)
	name, err := url.PathUnescape(escaped)
	return name, ok && err == nil && name != "" && url.PathEscape(name) == escaped
}

// keys hands out the keys of one process's claims. A key is the name's queue, a random
// series and a number. The next claim on the name gets the same key again.
//
// This is for speed: etcd keeps deleted keys in its index until a compaction, and by
// default that never comes. A range over the queue passes all of them.
//
// The create revision tells the claims of one key apart. A key goes on to the next
// claim only if all requests about it have been answered. If a request may still come,
// the whole series is given up. So nothing has to be remembered about single keys.
type keys struct {
	mu     sync.Mutex
	series string            // 130 random bits
	used   map[string]uint64 // by queue, the numbers in use as bits; none is 0
}

func newKeys() *keys { return &keys{series: rand.Text(), used: make(map[string]uint64)} }

// take returns a key for a claim in queue.
func (k *keys) take(queue string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	used := k.used[queue]
	n := bits.TrailingZeros64(^used)
	if n == 64 {
		return queue + rand.Text()
	}
	key := queue + k.series + strconv.Itoa(n)
	k.used[key[:len(queue)]] = used | 1<<n
	return key
}

// free lets another claim have key. It does nothing if its series has been given up.
func (k *keys) free(queue, key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	digits, ok := strings.CutPrefix(key[len(queue):], k.series)
	if !ok {
		return
	}
	n, _ := strconv.Atoi(digits)
	if used := k.used[queue] &^ (1 << n); used != 0 {
		k.used[queue] = used
	} else {
		delete(k.used, queue)
	}
}

// retire gives up the series of key, if it is still in use: no later claim gets
// key. The claims that have keys of the series keep them.
func (k *keys) retire(queue, key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if strings.HasPrefix(key[len(queue):], k.series) {
		k.series = rand.Text()
		k.used = make(map[string]uint64)
	}
}
