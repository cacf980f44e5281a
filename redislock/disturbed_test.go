package redislock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// Connections are killed, scripts flushed and the server is paused all the time, while many lock
// and many give up. No call may hold what another holds, get a lower token, or be forgotten. A
// wake-up lost for good shows as a wait of ten seconds, the longest poll. Nor may anybody see an
// error, other than that all four connections that go-redis tries for a request were killed.
func TestDisturbed(t *testing.T) {
	t.Parallel()
	s, admin := own(t)
	var holds atomic.Int64
	end, last := time.Now().Add(time.Second), time.Now().Add(time.Minute)
	over := func() bool {
		now := time.Now()
		return now.After(end) && holds.Load() >= 100 || now.After(last)
	}
	var clients sync.WaitGroup
	names := make([]disturbedName, 3)
	for i := range 8 {
		o := &Options{Options: distlock.Options{TTL: long}}
		var l *Locker
		if i%2 == 0 {
			l = lockerOn(t, client(t, s.URL()), o)
		} else {
			var err error
			if l, err = Open(t.Context(), s.URL(), o); err != nil { // which sends requests directly
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
		}
		for range 2 {
			clients.Go(func() {
				for !over() {
					i := rand.N(len(names))
					if names[i].hold(t, l, fmt.Sprint("x", i)) {
						holds.Add(1)
					}
				}
			})
		}
	}
	disturbing := make(chan struct{})
	go func() {
		defer close(disturbing)
		for !over() {
			disturb(admin)
			time.Sleep(rand.N(40 * time.Millisecond))
		}
	}()
	clients.Wait()
	<-disturbing
	if n := holds.Load(); n < 100 {
		t.Errorf("only %d holds: the test is none", n)
	}
	testkit.Until(t, "nobody holds a name or waits", func() bool {
		for i := range names {
			k := keyOf(defaultPrefix, fmt.Sprint("x", i))
			if admin.Exists(t.Context(), k.entry(), k.queue()).Val() > 0 {
				return false
			}
		}
		return true
	})
}

func disturb(admin *redis.Client) {
	ctx := context.Background()
	switch rand.N(5) {
	case 0:
		admin.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	case 1:
		admin.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub")
	case 2:
		admin.ScriptFlush(ctx)
	case 3:
		admin.Do(ctx, "CLIENT", "PAUSE", rand.N(20))
	case 4:
		for _, ch := range admin.PubSubChannels(ctx, "*").Val() {
			admin.Publish(ctx, ch, "nobody")
		}
	}
}

type disturbedName struct {
	mu    sync.Mutex
	held  bool
	token int64
}

// killed reports whether err is that of a connection.
func killed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// hold takes the name for a moment, and reports whether it did. One call in four has a short
// time limit.
func (n *disturbedName) hold(t *testing.T, l *Locker, name string) bool {
	limit := 9 * time.Second
	short := rand.N(4) == 0
	if short {
		limit = rand.N(5 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	lock, err := l.Lock(ctx, name)
	if short && errors.Is(err, context.DeadlineExceeded) || killed(err) {
		return false
	}
	if err != nil {
		t.Error(err)
		return false
	}
	n.mu.Lock()
	if n.held || lock.Token() <= n.token {
		t.Errorf("%s was granted with token %d, after %d; held by another: %v", name, lock.Token(), n.token, n.held)
	}
	n.held, n.token = true, lock.Token()
	n.mu.Unlock()
	time.Sleep(rand.N(500 * time.Microsecond))
	n.mu.Lock()
	n.held = false
	n.mu.Unlock()
	testkit.Should(t, lock.Unlock(context.Background()))
	return true
}
