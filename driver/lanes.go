package driver

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
)

const (
	// soundLanes is how many releases run side by side where the last request of the claim was answered,
	// failedLanes how many more where it has failed, and hangingLanes where it has hung: so will the
	// next, most likely.
	soundLanes   = 64
	failedLanes  = 32
	hangingLanes = 8

	// lastLanes is how many more claims are dropped side by side once Close has ended. Their last
	// calls, on a context that has ended, send nothing, but each may take its time.
	lastLanes = 1024

	// laneShare is how long a call that hangs keeps its lane from others: a part of a call.
	// So up to ten times as many calls hang side by side.
	laneShare = maxCall / 10

	// slowCall is how long a request takes that fails because the store is silent.
	slowCall = laneShare / 10

	// laneRest is the rest of a lane of failed or hanging claims after a call that has failed.
	// So a store that is down, or refuses, gets some two hundred requests a second at the most,
	// however much there is to remove; once it answers, no lane rests.
	laneRest = 200 * time.Millisecond

	// maxBacklog is how many releases may wait for a lane before those are dropped that are over
	// their time and had no call yet.
	maxBacklog = 1024
)

// lane runs calls side by side, up to a number. It is the one way of doing so in the engine. What
// waits for it costs no goroutine.
type lane struct {
	mu    sync.Locker
	spawn func(func())           // runs a goroutine
	queue []func() (failed bool) // first come, first served
	pick  func() func() bool     // if it is not nil: the next call instead, or nil if there is none; mu is held
	free  int                    // how many calls more may run
	share time.Duration          // a call that takes longer may hang, and another goes on beside it
	rest  time.Duration          // after a call that has failed sooner
}

// add has call made as soon as a lane is free; mu is held.
func (l *lane) add(call func() (failed bool)) {
	l.queue = append(l.queue, call)
	l.start()
}

// next returns the next call, or nil if there is none; mu is held.
func (l *lane) next() func() (failed bool) {
	if l.pick != nil {
		return l.pick()
	}
	if len(l.queue) == 0 {
		l.queue = nil
		return nil
	}
	call := l.queue[0]
	l.queue = l.queue[1:]
	return call
}

// start begins a goroutine if there is something to do and it may; mu is held.
func (l *lane) start() {
	if l.free == 0 {
		return
	}
	if call := l.next(); call != nil {
		l.free--
		l.spawn(func() { l.work(call) })
	}
}

// work makes one call after the other.
func (l *lane) work(call func() (failed bool)) {
	for call != nil {
		share := time.AfterFunc(l.share, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.free++
			l.start()
		})
		failed := call()
		if !share.Stop() {
			return
		}
		if failed && l.rest > 0 {
			share.Reset(l.rest)
			return
		}
		l.mu.Lock()
		if call = l.next(); call == nil {
			l.free++
		}
		l.mu.Unlock()
	}
}

// health is what the last request of a claim says of the next.
type health int

const (
	sound   health = iota // nothing: there was none, or it was answered in time
	failed                // it has failed
	hanging               // it had no answer in its time, or took long
)

// healthOf judges a request that ended with err; nil and ErrHeld are answers. took is how long it has taken,
// and ended whether its context has ended: a short timeout of a caller must not make a claim that
// hangs look sound.
func healthOf(err error, took time.Duration, ended bool) health {
	if errors.Is(err, distlock.ErrHeld) {
		err = nil
	}
	_, silent := errors.AsType[*NoAnswer](err)
	switch {
	case took > laneShare || err != nil && (ended || silent || took > slowCall):
		return hanging
	case err != nil:
		return failed
	}
	return sound
}

// lanes remove in the background what claims may have left in the store: those of failed
// attempts, of lost locks, of locks with an Unlock that had no answer, and in Close of all
// locks. Each lane makes one call at a time. What waits for a lane, or for its next call, costs
// some bytes and no goroutine, and ends with its patience.
//
// What hangs has lanes of its own, and what had the fewest calls comes first. So the names
// of a server that hangs, however many, delay no others: these have come through by then.
//
// Lock order: Handle.mu before lanes.mu, never the other way round.
type lanes struct {
	client *Client

	mu      sync.Mutex
	of      [hanging + 1]line
	paused  map[*release]*time.Timer // failed, until their next call
	notices lane                     // what the application is told of: losses, and panics of the driver
	over    bool                     // Close has ended
}

// line is what waits for a lane: the fewest calls first.
type line struct {
	lane
	heap   releases
	sorted instant // when the queue was looked through for what is over its time
}

func (l *lanes) init(c *Client) {
	l.client, l.paused = c, make(map[*release]*time.Timer)
	l.notices = lane{mu: &l.mu, spawn: c.tasks.spawn, free: soundLanes, share: laneShare}
	for i, free := range [...]int{sound: soundLanes, failed: failedLanes, hanging: hangingLanes} {
		of := &l.of[i]
		of.lane = lane{mu: &l.mu, spawn: c.tasks.spawn, pick: func() func() bool { return l.take(of) }, free: free, share: laneShare}
		if health(i) != sound {
			of.rest = laneRest
		}
	}
}

// notify has f tell the application of a loss, or of a panic of the driver. It may be slow, and all locks may be
// lost at once. The mutex of a handle may be held.
func (l *lanes) notify(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client.tasks.begin()
	l.notices.add(func() bool {
		defer l.client.tasks.finished()
		f()
		return false
	})
}

// add has the release run in the background, until it ends: at once, or after a pause if a
// call has failed. It may be called with the mutex of a handle held.
func (l *lanes) add(r *release) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client.tasks.begin()
	if r.calls == 0 || l.over {
		l.push(r)
		return
	}
	l.paused[r] = time.AfterFunc(r.retry.pause(), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.paused[r] != nil { // else Close was faster
			delete(l.paused, r)
			l.push(r)
		}
	})
}

// push queues a release, which is counted among the tasks; l.mu is held.
func (l *lanes) push(r *release) {
	of := &l.of[r.health]
	if l.over {
		of = &l.of[sound]
	}
	r.at = l.client.now()
	r.turn = r.calls
	heap.Push(&of.heap, r)
	of.start()
}

// take returns the next call, or nil if there is none; l.mu is held. What is over its time is dropped,
// and everything once Close has ended.
func (l *lanes) take(of *line) func() (failed bool) {
	if len(of.heap) == 0 {
		of.heap = nil
		return nil
	}
	l.sort(of)
	r := heap.Pop(&of.heap).(*release)
	backlog, over := len(of.heap), l.over
	return func() (failed bool) {
		defer l.client.tasks.finished()
		// After a stop of the process, or behind many that hang, a release may be over its time
		// before its first call.
		switch {
		case over || r.over() && (r.calls > 0 || r.health == hanging || backlog > maxBacklog):
			r.drop()
		case r.call(r.ctx, maxCall, true):
			r.finish()
		default:
			l.add(r)
			return true
		}
		return false
	}
}

// sort brings to the front what is over its time, once a second: it would stay behind others that had
// fewer calls. l.mu is held.
func (l *lanes) sort(of *line) {
	now := l.client.now()
	if now.sub(of.sorted) < time.Second {
		return
	}
	of.sorted = now
	for _, r := range of.heap {
		if r.over() {
			r.turn = -1
		}
	}
	heap.Init(&of.heap)
}

// end has what waits dropped, in the background: Close has lost its patience, or nothing is
// left.
func (l *lanes) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	last := &l.of[sound]
	last.heap = append(append(last.heap, l.of[failed].heap...), l.of[hanging].heap...)
	l.of[failed].heap, l.of[hanging].heap = nil, nil
	for r, timer := range l.paused {
		timer.Stop()
		last.heap = append(last.heap, r)
	}
	clear(l.paused)
	heap.Init(&last.heap)
	last.free += lastLanes
	for range last.heap {
		last.start()
	}
}

// releases is a heap by turn, and then by time.
type releases []*release

func (p releases) Len() int { return len(p) }
func (p releases) Less(i, j int) bool {
	return p[i].turn < p[j].turn || p[i].turn == p[j].turn && p[i].at < p[j].at
}
func (p releases) Swap(i, j int) { p[i], p[j] = p[j], p[i] }

// Push implements heap.Interface.
func (p *releases) Push(x any) { *p = append(*p, x.(*release)) }

// Pop implements heap.Interface.
func (p *releases) Pop() any {
	old := *p
	n := len(old) - 1
	r := old[n]
	old[n] = nil
	*p = old[:n]
	return r
}

// eachParallel is how many renewals of one batch RenewEach sends side by side. An Unlock
// waits for the entries of its batch sent before its own: at 300 ms a request, for two
// seconds at the most.
const eachParallel = 64

// RenewEach renews a batch by a call of renew for each entry without an answer, a few side by
// side, and passes on each answer at once. It is for drivers that cannot renew many claims in
// one request, or not all. A call that hangs soon lets the next begin beside it. A panic in one
// is passed on when all have returned.
func RenewEach(ctx context.Context, batch []Renewal, renew func(ctx context.Context, c Claim, ttl time.Duration) (Grant, error)) {
	var rest []*Renewal
	for i := range batch {
		if r := &batch[i]; !r.done {
			rest = append(rest, r)
		}
	}
	if len(rest) == 1 {
		rest[0].Answer(renew(ctx, rest[0].Claim, rest[0].TTL))
		return
	}
	share := maxCall / renewShare
	if end, ok := ctx.Deadline(); ok {
		share = time.Until(end) / renewShare
	}
	var mu sync.Mutex
	var unanswered sync.WaitGroup
	unanswered.Add(len(rest))
	var failed atomic.Pointer[panicked]
	one := func(r *Renewal) {
		defer unanswered.Done()
		defer func() {
			if v := recover(); v != nil {
				p := asPanic(v)
				failed.Store(p)
				r.Answer(Grant{}, p.err())
			}
		}()
		if err := ctx.Err(); err != nil {
			r.Answer(Grant{}, err)
			return
		}
		r.Answer(renew(ctx, r.Claim, r.TTL))
	}
	l := &lane{mu: &mu, spawn: func(f func()) { go f() }, free: eachParallel, share: share}
	mu.Lock()
	for _, r := range rest {
		l.add(func() bool { one(r); return false })
	}
	mu.Unlock()
	unanswered.Wait()
	if p := failed.Load(); p != nil {
		panic(p)
	}
}
