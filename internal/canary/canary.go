// Package canary measures how late this process is woken, so that a bound in real time can
// tell a slow answer from a slow machine.
//
// A canary is a goroutine that sleeps for a short time, again and again. What it oversleeps
// is time in which the machine ran something else, or nothing of this process at all: other
// processes, a hypervisor, a stop. Whatever else waited for a processor meanwhile may have
// been as late. It sees no delay that only the server of a test has, and it makes no
// difference between load from outside and this process' own.
//
// A goroutine can be late while the canary is not: the thread that runs it gets no processor, and other threads run the
// other goroutines. So the canary of StartRecording also asks the kernel, where that can be asked, how long threads have
// waited for a processor.
package canary

import (
	"slices"
	"sync"
	"time"
)

const (
	// period is how long the canary sleeps at a time. A shorter one would be a load itself.
	period = 5 * time.Millisecond

	// noise is what an idle machine oversleeps: timers have a granularity of about a millisecond.
	noise = 2 * time.Millisecond

	// threadsEvery is how often the threads are looked at. Of their waits, those count that are longer.
	threadsEvery = 100 * time.Millisecond
)

// Canary counts how late this process is woken. Its methods are safe for concurrent use.
type Canary struct {
	quit chan struct{}
	once sync.Once

	mu      sync.Mutex
	due     time.Time // when the sleep under way should end
	late    time.Duration
	overran []span // for Between; nil unless it is asked for
	waited  []span // by threads
	records bool
}

// span is a time in which the canary was not woken although it should have been.
type span struct{ from, to time.Time }

// Start returns a canary that runs until Stop.
func Start() *Canary { return start(false) }

// StartRecording returns a canary that runs until Stop and also knows when it, or a thread, was late. That
// takes some kilobytes for each second in which the machine is late.
func StartRecording() *Canary { return start(true) }

func start(records bool) *Canary {
	c := &Canary{quit: make(chan struct{}), due: time.Now().Add(period), records: records}
	go c.run()
	if records {
		go c.watchThreads()
	}
	return c
}

// watchThreads notes threads that have waited for a processor for longer than the time between two looks: such a wait began
// before it.
func (c *Canary) watchThreads() {
	tick := time.NewTicker(threadsEvery)
	defer tick.Stop()
	look := make(threads)
	defer func() {
		for name := range look {
			look.close(name)
		}
	}()
	last, before := time.Now(), look.waits()
	for {
		select {
		case <-tick.C:
		case <-c.quit:
			return
		}
		now, present := time.Now(), look.waits()
		worst := time.Duration(0)
		for id, waited := range present {
			if was, known := before[id]; known {
				worst = max(worst, waited-was)
			}
		}
		if worst > max(threadsEvery, now.Sub(last)) {
			c.mu.Lock()
			c.waited = append(c.waited, span{now.Add(-worst), now})
			c.mu.Unlock()
		}
		last, before = now, present
	}
}

func (c *Canary) run() {
	timer := time.NewTimer(period)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-c.quit:
			return
		}
		c.mu.Lock()
		if over := c.overdue(); over > 0 {
			c.late += over
			if c.records {
				c.overran = append(c.overran, span{c.due, c.due.Add(over)})
			}
		}
		c.due = time.Now().Add(period)
		c.mu.Unlock()
		timer.Reset(period)
	}
}

// overdue is how late the sleep under way is by now; c.mu is held.
func (c *Canary) overdue() time.Duration {
	if over := time.Since(c.due); over > noise {
		return over
	}
	return 0
}

// Late returns the sum of all that the canary was late since Start: zero on a machine that
// has a processor to spare, and never more than the time since Start. The difference of
// two calls is the lateness in between.
func (c *Canary) Late() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late + c.overdue()
}

// Between returns how much of a time a canary of StartRecording, or a thread, was late for: never more than
// that time.
func (c *Canary) Between(from, to time.Time) (late time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.overran
	if over := c.overdue(); over > 0 {
		all = append(all[:len(all):len(all)], span{c.due, c.due.Add(over)})
	}
	return min(max(within(all, from, to), within(c.waited, from, to)), to.Sub(from))
}

// within returns the sum of what spans, in the order of their ends, have of a time.
func within(spans []span, from, to time.Time) (sum time.Duration) {
	for _, s := range slices.Backward(spans) {
		if !s.to.After(from) {
			break
		}
		if s.from.Before(from) {
			s.from = from
		}
		if s.to.After(to) {
			s.to = to
		}
		sum += max(0, s.to.Sub(s.from))
	}
	return sum
}

// Longest returns the longest time for which the canary, or a thread, was late at once, of those that ended after from. It is
// for a canary of StartRecording.
func (c *Canary) Longest(from time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.overdue(), longest(c.overran, from), longest(c.waited, from))
}

func longest(spans []span, from time.Time) (most time.Duration) {
	for _, s := range slices.Backward(spans) {
		if !s.to.After(from) {
			break
		}
		most = max(most, s.to.Sub(s.from))
	}
	return most
}

// Stop ends the canary and returns the last Late. Later calls are allowed.
func (c *Canary) Stop() time.Duration {
	late := c.Late()
	c.once.Do(func() { close(c.quit) })
	return late
}
