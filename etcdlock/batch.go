package etcdlock

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

const (
	// maxUnderWay is how many requests of a batcher are under way at a time. Few callers then wait
	// for nobody, and one that hangs delays few.
	maxUnderWay = 2

	// maxBatch is how many transactions one request takes along. A server allows 128 operations
	// by default, and counts those of the outer one against each inner one.
	maxBatch = 64

	// samePatience is how many times the time that its least patient caller has left another of a batch may have.
	samePatience = 4

	// maxDelay is how long a transaction waits for requests to return: all of them may hang.
	maxDelay = 100 * time.Millisecond
)

// batcher sends the transactions of different names. One that comes while maxUnderWay requests are
// under way waits until one returns, and then goes with all that have come meanwhile, as one
// transaction of theirs: one proposal to the members instead of many. If none returns within
// maxDelay, they go all the same. This is for speed only (go test ./etcdlock -run - -bench Batcher).
//
// A condition that is false is that of its own transaction. A request that is refused for good may
// be so for one of them: then each is sent again, alone. Of one with an unknown outcome each is
// unknown.
//
// Claims and releases have a batcher each: a full store refuses the first and does the second.
type batcher struct {
	store  *store
	single bool // one copy of each request
	delay  time.Duration

	mu      sync.Mutex
	running int // requests under way
	waiting []*item
	overdue *time.Timer // runs while some wait
}

func newBatcher(s *store, single bool) *batcher {
	return &batcher{store: s, single: single, delay: maxDelay}
}

// item is a transaction that waits for others. The rest is final when done is closed.
type item struct {
	txn
	queue string    // of its name
	until time.Time // its caller waits no longer
	done  chan struct{}
	answer[outcome]
	alone bool // it is to be sent again
}

// send sends a transaction about the name of a queue, and waits for its outcome.
func (b *batcher) send(ctx context.Context, queue string, t txn) answer[outcome] {
	it := &item{txn: t, queue: queue, done: make(chan struct{})}
	began, limit := time.Now(), bound(ctx, b.interval(ctx))
	it.until = began.Add(limit)
	if !b.enter(it) {
		defer b.leave()
		return b.store.txn(ctx, b.interval(ctx), t)
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-it.done:
	case <-bounded.Done():
		err := worded(ctx, bounded.Err(), nil, time.Since(began))
		if b.cancel(it) {
			return answer[outcome]{err: &driver.Fault{Fate: driver.NotSent, Err: err}}
		}
		return answer[outcome]{err: err, unsure: true}
	}
	if !it.alone {
		return it.answer
	}
	again := b.store.txn(ctx, b.interval(ctx), t)
	again.unsure = again.unsure || it.unsure
	return again
}

func (b *batcher) interval(ctx context.Context) time.Duration {
	if b.single {
		return once
	}
	return b.store.steady(ctx)
}

// enter reports whether it has to wait for others. Else its caller sends it, and then leaves.
func (b *batcher) enter(it *item) (waits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running < maxUnderWay {
		b.running++
		return false
	}
	b.waiting = append(b.waiting, it)
	if len(b.waiting) == 1 {
		b.watch()
	}
	return true
}

// leave ends a request that a caller has sent itself. What has come meanwhile goes next.
func (b *batcher) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 {
		b.store.background.Go(b.flush)
	} else {
		b.running--
	}
}

// cancel reports whether it was still waiting, and will not be sent.
func (b *batcher) cancel(it *item) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, it)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	return i >= 0
}

// watch has another request sent if those under way have not returned after the delay; b.mu is
// held.
func (b *batcher) watch() {
	if b.overdue != nil {
		b.overdue.Reset(b.delay)
		return
	}
	b.overdue = time.AfterFunc(b.delay, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.waiting) > 0 { // else Close may be waiting for the background
			b.running++ // it may exceed maxUnderWay: requests that hang must not stop those that do not
			b.store.background.Go(b.flush)
		}
	})
}

// flush sends what waits until nothing does.
func (b *batcher) flush() {
	for items := b.take(); len(items) > 0; items = b.take() {
		b.together(items)
		for _, it := range items {
			close(it.done)
		}
		runtime.Gosched() // these callers often lock or unlock again at once, and share the next request
	}
}

// take returns what goes with the next request, each name once; nothing if flush is to end. A caller with much less
// time than others does not go with them: it would have copies of theirs sent soon, and a slow answer to the first would
// leave all of them unsure.
func (b *batcher) take() (items []*item) {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := make(map[string]bool, len(b.waiting))
	rest := b.waiting[:0]
	var least, most time.Duration
	for i, it := range b.waiting {
		left := max(time.Until(it.until), minRequest)
		if i == 0 {
			least, most = left, left
		}
		if len(items) == maxBatch || names[it.queue] || left > samePatience*least || most > samePatience*left {
			rest = append(rest, it)
			continue
		}
		least, most = min(least, left), max(most, left)
		names[it.queue] = true
		items = append(items, it)
	}
	clear(b.waiting[len(rest):])
	b.waiting = rest
	switch {
	case len(items) == 0:
		b.running--
	case len(rest) > 0:
		b.watch()
	case b.overdue != nil:
		b.overdue.Stop()
	}
	return items
}

// together sends several transactions as one. None of their contexts counts for it: a caller that
// leaves must not fail the others. The least patient one decides when the next member is asked: else it
// would fail at a stopped member, where it had come through alone.
func (b *batcher) together(items []*item) {
	least, most := maxRequest, minRequest
	ops := make([]clientv3.Op, len(items))
	for i, it := range items {
		left := time.Until(it.until)
		least, most = min(least, left), max(most, left)
		ops[i] = it.op()
	}
	interval := max(least, minRequest) / time.Duration(b.store.copies)
	if b.single {
		interval = alone
	}
	var all answer[*pb.TxnResponse]
	all.err = bounded(b.store.life, most, func(ctx context.Context) error {
		all = send(ctx, b.store, interval, func(ctx context.Context) (*pb.TxnResponse, error) {
			resp, err := b.store.kv.Do(ctx, clientv3.OpTxn(nil, ops, nil))
			if err == nil && len(resp.Txn().Responses) != len(ops) {
				err = errGarbled
			}
			return (*pb.TxnResponse)(resp.Txn()), err
		})
		return all.err
	})
	refused := all.err != nil && driver.FateOf(all.err) == driver.Answered && !errors.Is(all.err, distlock.ErrClosed)
	for i, it := range items {
		it.err, it.alone, it.unsure = all.err, refused, all.unsure
		if all.err == nil {
			it.got, it.err = it.txn.outcome(all.got.Responses[i].GetResponseTxn(), all.got.Header.GetRevision())
			it.unsure = all.unsure || it.err != nil
		}
	}
}
