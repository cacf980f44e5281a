package etcdlock

import (
	"context"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/etcdlock/internal/member"
)

// How a waiter misses no release, and is woken alone:
//
//	waiter                          etcd                      holder
//	  |-- put key, read queue ------->|                          |
//	  |<- rev 12; before it: rev 7 ---|                          |
//	  |-- watch the key of rev 7 ---->|                          |
//	  |<- begun at revision 15 -------|                          |
//	  |-- read 7 and 12, as 15 > 12 ->|  a release between the   |
//	  |<- both are there, still ------|  two is seen here        |
//	  |                               |<------------ delete key -|
//	  |<- deleted at revision 20 -----|------------- released -->|
//	  |-- read queue ---------------->|
//	  |<- rev 12 is the oldest -------|  granted, with token 12
//
// A loop serves a watch from a past revision, and it runs every 100 ms. On a busy
// store, every revision known to a waiter is past. So watches start now, and the two
// keys are read once more if the store was written to since.

// watchLimit is how long a waiter waits for a watch to begin.
const watchLimit = time.Second

// waiting is what a claim has while it waits, apart from it because a held lock needs
// none of it.
type waiting struct {
	before    string             // the key before the own one in the queue
	beforeRev int64              // its create revision
	asOf      int64              // the revision of the store when before was read last
	held      distlock.HeldError // as of the last read of the queue
	moved     bool               // before has gone, or may have
	watch     watch              // of before
	refused   bool               // the last watch was, at once
}

// Wait implements driver.Claim. It watches the key before the own one, so that a
// release wakes up one waiter. How a watch ends is all the same: Try looks again. It
// may end by an event, by compaction, without a leader, or with the client. If a watch
// has not ended, the next Wait uses it, and needs no request.
//
// A watch that is refused wakes the waiter up once: the next Try says that the engine has to
// poll. Later refusals do not wake it, or it would look without a pause.
//
// The client library has a goroutine for each stream of watches and one for each watch.
// gRPC delivers the messages of a stream only to a goroutine in Recv.
func (c *claim) Wait(ctx context.Context) error {
	before := c.refused
	if !c.arm(ctx) {
		if before && c.refused {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	for {
		select {
		case r, open := <-c.watch.events:
			if !c.told(r, open) {
				continue
			}
		case <-ctx.Done():
		}
		return ctx.Err()
	}
}

// told reports whether Try has to look for what the watch has said.
func (c *claim) told(r clientv3.WatchResponse, open bool) bool {
	n := len(r.Events)
	switch {
	case !open || r.Err() != nil || n > 0 && r.Events[n-1].Kv == nil:
		c.watch.end()
	case n == 0 || r.Events[n-1].Kv.ModRevision <= c.asOf:
		return false // of an earlier claim that had the key
	default:
		c.moved = true
	}
	return true
}

// arm has the key before the own one watched. It reports false if Try has to look at
// once, because the watch cannot begin or may come too late.
func (c *claim) arm(ctx context.Context) bool {
	if c.watch.key == c.before {
		return true
	}
	c.watch.end()
	var ok bool
	c.refused = false
	if c.watch, ok = c.store.watches.take(c.before); !ok {
		if ok, c.refused = c.watch.begin(ctx, c.store, c.before); !ok {
			return false
		}
	}
	if c.watch.began <= c.asOf {
		return true
	}
	same, err := c.unmoved(ctx)
	c.moved = c.moved || !same && err == nil
	return same
}

// stopWaiting hands the watch to done, if the claim has waited.
func (c *claim) stopWaiting(done func(*watch)) {
	if c.waiting != nil {
		done(&c.watch)
		c.waiting = nil
	}
}

// watch tells of the deletions of a key. The zero value watches nothing.
type watch struct {
	key    string
	began  int64 // it tells what comes after this revision of the store
	events clientv3.WatchChan
	cancel context.CancelFunc
}

// begin starts the watch, and reports whether it has begun. If it has not, refused tells
// that there was an answer, before the time was over.
//
// All watches share one stream, with one member and one login. If that member does not
// answer in time, or refuses, as when the login has run out, the next watch has a new
// stream, with the next member and a new login.
//
// The library asks for one watch of a stream after the other. So a watch has the limit
// for itself only if it begins alone. Without that, a hundred watches on a slow server
// gave up at once, looked at the queue, and made the server slower.
func (w *watch) begin(ctx context.Context, s *store, key string) (began, refused bool) {
	select {
	case s.beginning <- struct{}{}:
		defer func() { <-s.beginning }()
	case <-ctx.Done():
		return false, false
	}
	// The watch outlives ctx. With nothing but this in its context it shares one
	// stream with all others, also if callers put metadata into theirs.
	stream := s.stream.Load()
	life := member.LastLogin(clientv3.WithRequireLeader(context.Background()))
	if stream > 0 {
		life = metadata.AppendToOutgoingContext(life, "distlock-stream", strconv.FormatInt(stream, 10))
	}
	life, cancel := context.WithCancel(life)
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	limit := time.AfterFunc(s.watches.limit, cancel)
	defer limit.Stop()
	*w = watch{key: key, events: s.watcher.Watch(life, key, clientv3.WithFilterPut(), clientv3.WithCreatedNotify()), cancel: cancel}
	select {
	case created, open := <-w.events:
		if open && created.Created && limit.Stop() && stop() {
			w.began = created.Header.Revision
			return true, false
		}
	case <-life.Done():
	}
	refused = life.Err() == nil && ctx.Err() == nil
	if ctx.Err() == nil {
		s.stream.CompareAndSwap(stream, stream+1)
	}
	w.end()
	return false, refused
}

// end stops the watch, if there is one.
func (w *watch) end() {
	if w.cancel != nil {
		w.cancel()
	}
	*w = watch{}
}

const (
	// maxIdle is how many watches without a claim a driver keeps, and idlePeriod is for
	// how long. Their unread events are in memory meanwhile.
	maxIdle    = 16
	idlePeriod = time.Second
)

// idleWatches are watches of claims that have won, for the next claims. If the same
// processes lock a name again and again, each mostly follows the same key. This is for
// speed.
type idleWatches struct {
	period time.Duration
	limit  time.Duration // of the beginning of a watch

	mu     sync.Mutex
	closed bool
	byKey  map[string]idleWatch
}

type idleWatch struct {
	watch
	end *time.Timer
}

// put keeps w for a while, if it watches anything.
func (i *idleWatches) put(w *watch) {
	i.mu.Lock()
	defer i.mu.Unlock()
	idle := idleWatch{watch: *w}
	if _, have := i.byKey[w.key]; have || i.closed || w.key == "" || len(i.byKey) == maxIdle {
		w.end()
		return
	}
	idle.end = time.AfterFunc(i.period, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if now, have := i.byKey[idle.key]; have && now.end == idle.end {
			delete(i.byKey, idle.key)
			idle.cancel()
		}
	})
	i.byKey[w.key] = idle
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
		idle.cancel()
	}
	clear(i.byKey)
}
