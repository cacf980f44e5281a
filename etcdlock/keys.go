package etcdlock

import (
	"crypto/rand"
	"math/bits"
	"strconv"
	"strings"
	"sync"
)

// keys hands out the keys of one driver's claims: the name's queue, a random series
// and a number, and the same key again for the next claim on the name.
//
// A key of its own for each claim would slow the name down with every lock taken.
// etcd has each key that ever was in its index until a compaction, which by default
// never comes, and a range over the queue passes them all: after a few thousand
// locks that is most of what the server does for the next one.
//
// What keeps the claims that use a key one after the other apart is the create
// revision, and that a key goes on to the next only if all requests about it have
// been answered. After one that has not, and may still come, the whole series is
// given up, so that nothing has to be remembered about single keys.
type keys struct {
	mu     sync.Mutex
	series string            // 130 random bits
	used   map[string]uint64 // by queue, the numbers in use; none is 0
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

// abandon gives up the series of key, if that is still in use: no later claim gets
// key. The claims that have keys of the series keep them.
func (k *keys) abandon(queue, key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if strings.HasPrefix(key[len(queue):], k.series) {
		k.series = rand.Text()
		k.used = make(map[string]uint64)
	}
}
