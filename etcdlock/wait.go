package etcdlock

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
)

// ownWatchDelay is how long a waiter does without the watch of its own key. Most do
// not wait as long, and it is as much work for the servers as the one ahead.
const ownWatchDelay = time.Second

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
		timer := time.NewTimer(ownWatchDelay)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case <-c.ahead.events:
			c.ahead.end()
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
// is read once more.
func (c *claim) watch(ctx context.Context, w *watch, key string) bool {
	if w.key == key {
		return true
	}
	w.end()
	revision, ok := w.begin(ctx, c.driver.client, key)
	if !ok || revision <= c.asOf {
		return ok
	}
	before := c.before
	return errors.Is(c.look(ctx), distlock.ErrHeld) && c.before == before
}

// watch tells of the deletion of a key. The zero value watches nothing.
type watch struct {
	key    string
	events clientv3.WatchChan
	cancel context.CancelFunc
}

// begin starts the watch and returns the revision of the store at which, or a little
// before which, it has started. It reports false if it could not be.
func (w *watch) begin(ctx context.Context, client *clientv3.Client, key string) (revision int64, ok bool) {
	// The watch outlives ctx. With nothing but this in its context it shares one
	// stream with all others, also if callers put metadata into theirs.
	life, cancel := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	*w = watch{key, client.Watch(life, key, clientv3.WithFilterPut(), clientv3.WithCreatedNotify()), cancel}
	select {
	case created, open := <-w.events:
		if open && created.Created && stop() {
			return created.Header.Revision, true
		}
	case <-life.Done():
	}
	w.end()
	return 0, false
}

// end stops the watch, if there is one.
func (w *watch) end() {
	if w.cancel != nil {
		w.cancel()
	}
	*w = watch{}
}

func (c *claim) unwatch() {
	c.ahead.end()
	c.own.end()
}
