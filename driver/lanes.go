package driver

import (
	"container/heap"
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// soundLanes is how many releases run side by side, and failingLanes how many more of
	// claims whose last request has failed: these may hang.
	soundLanes   = 64
	failingLanes = 8

	// lastLanes is how many more claims are dropped side by side once Close has ended. Their last
	// calls, on a context that has ended, send nothing, but each may take its time.
	lastLanes = 1024

	// laneShare is how long a call that hangs keeps its lane from others: a part of a call.
	// So up to ten times as many calls hang side by side.
	laneShare = maxCall / 10

	// laneRest is the rest of a failing lane after a call that has failed.
	// So a store that is down, or refuses, gets some hundred requests a second at the most,
	// however much there is to remove; once it answers, no lane rests.
	laneRest = 50 * time.Millisecond

	// maxBacklog is how many releases may wait for a lane before those are dropped that are over
	// their time and had no call yet.
	maxBacklog = 1024
)

// lanes remove in the background what claims may have left in the store: those of failed
// attempts, of lost locks, of locks whose Unlock had no answer, and in Close of all
// locks. Each lane makes one call at a time. What waits for a lane, or for its next call, costs
// some bytes and no goroutine, and ends with its patience.
//
// Lock order: Handle.mu before lanes.mu, never the other way round.
type lanes struct {
	client *Client

	mu      sync.Mutex
	sound   lane
	failing lane
	paused  paused      // failed, until their next call
	timer   *time.Timer // of the next of them; nil if there never was one
	over    bool        // Close has ended
}

// lane is a queue, and how many calls more it may have side by side.
type lane struct {
	queue []*release
	free  int
}

func (l *lanes) init(c *Client) {
	l.client = c
	l.sound.free, l.failing.free = soundLanes, failingLanes
}

// add has the release run in the background, until it ends: at once, or after a pause if a
// call has failed. It may be called with the mutex of a handle held.
func (l *lanes) add(r *release) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client.tasks.begin()
	if r.calls > 0 && !l.over {
		l.pause(r)
	} else {
		l.push(r)
	}
}

// push queues a release, which is counted among the tasks; l.mu is held.
func (l *lanes) push(r *release) {
	of := &l.sound
	if r.failing && !l.over {
		of = &l.failing
	}
	of.queue = append(of.queue, r)
	l.start(of)
}

// start begins a goroutine if there is something to do and it may; l.mu is held.
func (l *lanes) start(of *lane) {
	if of.free > 0 && len(of.queue) > 0 {
		of.free--
		l.client.tasks.spawn(func() { l.work(of) })
	}
}

// work makes one call after the other. If one takes longer than its share, another
// goroutine goes on beside it.
func (l *lanes) work(of *lane) {
	for r := l.take(of); r != nil; r = l.take(of) {
		share := time.AfterFunc(laneShare, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			of.free++
			l.start(of)
		})
		done := r.call()
		if done {
			r.end()
		} else {
			l.add(r)
		}
		if !share.Stop() {
			return
		}
		if !done && of == &l.failing {
			share.Reset(laneRest)
			return
		}
	}
}

// take returns the next release, or nil if there is none. It drops what is over its time, and
// everything once Close has ended.
func (l *lanes) take(of *lane) *release {
	for {
		l.mu.Lock()
		if len(of.queue) == 0 {
			of.queue = nil
			of.free++
			l.mu.Unlock()
			return nil
		}
		r := of.queue[0]
		of.queue[0], of.queue = nil, of.queue[1:]
		backlog, over := len(of.queue), l.over
		l.mu.Unlock()
		l.client.tasks.finished() // the goroutine counts
		// After a stop of the process a release may be over its time before its first call.
		// An entry that lives by a session would stay for ever.
		if !over && (!r.over() || r.calls == 0 && backlog <= maxBacklog) {
			return r
		}
		r.drop()
	}
}

// pause has a release, which is counted among the tasks, wait for its next call; l.mu is held.
func (l *lanes) pause(r *release) {
	r.failing = true
	r.at = l.client.now().add(r.retry.pause())
	heap.Push(&l.paused, r)
	l.arm()
}

// arm sets the timer to the next release that is due; l.mu is held.
func (l *lanes) arm() {
	if len(l.paused) == 0 {
		return
	}
	d := l.paused[0].at.sub(l.client.now())
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.resume)
	} else {
		l.timer.Reset(d)
	}
}

// resume queues what is due.
func (l *lanes) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for now := l.client.now(); len(l.paused) > 0 && l.paused[0].at <= now; {
		l.push(heap.Pop(&l.paused).(*release))
	}
	l.arm()
}

// end has what waits dropped, in the background: Close has lost its patience, or nothing is
// left.
func (l *lanes) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.sound.queue = append(append(l.sound.queue, l.failing.queue...), l.paused...)
	l.failing.queue, l.paused = nil, nil
	l.sound.free += lastLanes
	for range l.sound.queue {
		l.start(&l.sound)
	}
}

// paused is a heap of releases by the time of their next call.
type paused []*release

func (p paused) Len() int           { return len(p) }
func (p paused) Less(i, j int) bool { return p[i].at < p[j].at }
func (p paused) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }

// Push implements heap.Interface.
func (p *paused) Push(x any) { *p = append(*p, x.(*release)) }

// Pop implements heap.Interface.
func (p *paused) Pop() any {
	old := *p
	n := len(old) - 1
	r := old[n]
	old[n] = nil
	*p = old[:n]
	return r
}

// call makes the next call of Release, on a goroutine of the engine.
func (r *release) call() (done bool) {
	if err := r.client.guard(r.ctx, r.name, func() { done = r.try(r.ctx, maxCall) }); err != nil {
		return r.failed(Unknown, err)
	}
	return done
}

// drop ends a release that is over its time, or that Close does not wait for. A claim that
// had no call of Release has one, on a context that has ended: the driver learns that nothing
// else will come.
func (r *release) drop() {
	if r.calls == 0 {
		ended, cancel := context.WithCancel(r.ctx)
		cancel()
		_ = r.client.guard(r.ctx, r.name, func() { _ = r.claim.Release(ended) })
		waited := &NoAnswer{From: r.client.caps.Backend, After: time.Since(r.began)}
		r.err = fmt.Errorf("%w to earlier releases", waited)
	}
	r.end()
}
