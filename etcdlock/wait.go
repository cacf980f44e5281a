package etcdlock

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
)

// ownWatchDelay is how long a waiter does without the watch of its own key. Most do
// not wait as long, and it is as much work for the servers as the one ahead.
const ownWatchDelay = time.Second

// waiting is what a claim has while it waits, apart from it because a lock that is
// held needs none of it.
type waiting struct {
	before string // the key before the own one in the queue
	asOf   int64  // the revision of the store at which that was so
	ahead  watch  // of before
	own    watch  // of the own key
}

// Wait implements distlock.Claim. It watches the key before the own one, so that a
// release wakes one waiter, and after a while the own one, so that a waiter whose
// lease has died does not wait for nothing. How a watch ends is all the same, be it
// by an event, by compaction, without a leader, or with the client: Try looks again.
//
// The watches stay for the next Wait, which needs no request then.
func (c *claim) Wait(ctx context.Context) error {
	if !c.watch(ctx, &c.ahead, c.before) {
		return ctx.Err()
	}
	var late <-chan time.Time
	if c.own.key == "" {
		timer := time.NewTimer(c.driver.ownWatchDelay)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case r, open := <-c.ahead.events:
			if n := len(r.Events); !open || r.Err() != nil {
				c.ahead.end()
			} else if n > 0 && r.Events[n-1].Kv.ModRevision <= c.asOf {
				continue // of an earlier claim that had the key
			}
		case <-c.own.events:
			c.own.end()
		case <-late:
			if late = nil; c.watch(ctx, &c.own, c.key) {
				continue
			}
		case <-ctx.Done():
		}
		return ctx.Err()
	}
}

// watch makes w watch key, if it does not already. It reports false if that cannot
// be, or if Try has to look again because it may come too late.
//
// A watch that starts at a revision of the past is served by a loop that runs every
// 100 ms, and on a busy store every revision that a waiter knows is of the past. So
// watches start now, and if the store was written to since the queue was read, it
// is read once more. Neither is needed if there is a watch that has started before:
// where the same processes take turns, each mostly follows the same key.
func (c *claim) watch(ctx context.Context, w *watch, key string) bool {
	if w.key == key {
		return true
	}
	w.end()
	var ok bool
	if *w, ok = c.driver.idle.take(key); !ok && !w.begin(ctx, c.driver.client, key) {
		return false
	}
	if w.began <= c.asOf {
		return true
	}
	before := c.before
	return errors.Is(c.look(ctx), distlock.ErrHeld) && c.before == before
}

// watch tells of the deletions of a key. The zero value watches nothing.
type watch struct {
	key    string
	began  int64 // what comes after this revision of the store it tells
	events clientv3.WatchChan
	cancel context.CancelFunc
}

// begin starts the watch. It reports false if it could not be.
func (w *watch) begin(ctx context.Context, client *clientv3.Client, key string) bool {
	// The watch outlives ctx. With nothing but this in its context it shares one
	// stream with all others, also if callers put metadata into theirs.
	life, cancel := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	*w = watch{key: key, events: client.Watch(life, key, clientv3.WithFilterPut(), clientv3.WithCreatedNotify()), cancel: cancel}
	select {
	case created, open := <-w.events:
		if open && created.Created && stop() {
			w.began = created.Header.Revision
			return true
		}
	case <-life.Done():
	}
	w.end()
	return false
}

// end stops the watch, if there is one.
func (w *watch) end() {
	if w.cancel != nil {
		w.cancel()
	}
	*w = watch{}
}

const (
	// maxIdle is how many watches that nobody needs a driver keeps, and idlePeriod
	// for how long: what they tell is in memory meanwhile.
	maxIdle    = 16
	idlePeriod = time.Second
)

// idleWatches are watches of claims that have won, for the next ones.
type idleWatches struct {
	period time.Duration

	mu     sync.Mutex
	closed bool
	byKey  map[string]idleWatch
}

type idleWatch struct {
	watch
	end *time.Timer
}

// put keeps w for a while, if it watches anything.
func (i *idleWatches) put(w watch) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, have := i.byKey[w.key]; have || i.closed || w.key == "" || len(i.byKey) == maxIdle {
		w.end()
		return
	}
	var end *time.Timer
	end = time.AfterFunc(i.period, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if idle, have := i.byKey[w.key]; have && idle.end == end {
			delete(i.byKey, w.key)
			w.end()
		}
	})
	i.byKey[w.key] = idleWatch{w, end}
}

// take returns the watch of key, if there is one.
func (i *idleWatches) take(key string) (watch, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	idle, have := i.byKey[key]
	if have {
		idle.end.Stop()
		delete(i.byKey, key)
	}
	return idle.watch, have
}

// close ends them all, and those that come later.
func (i *idleWatches) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	for _, idle := range i.byKey {
		idle.end.Stop()
		idle.watch.end()
	}
	clear(i.byKey)
}
