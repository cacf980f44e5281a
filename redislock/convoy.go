package redislock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxFlying is how many requests of one Locker are under way, each on a
	// connection of its own, before others wait for one to return. Few callers then
	// wait for nobody, and one connection that hangs holds up few.
	maxFlying = 4

	// maxConvoy is how many requests go together at the most, so that no caller
	// waits for long on behalf of others.
	maxConvoy = 100

	// maxHalt is for how long a request waits for others to come back: those may be
	// on connections that hang.
	maxHalt = 100 * time.Millisecond
)

// convoy sends requests that come while others are under way together, in one
// pipeline, as soon as one of those returns. A request that meets no others is not
// delayed. With 64 callers it saves most of the system calls, on both sides.
//
// There is no goroutine behind it: whoever's request has returned, and finds others
// waiting, makes the first of them the leader, who sends all.
type convoy struct {
	client redis.UniversalClient
	halt   time.Duration // maxHalt, but in tests

	mu      sync.Mutex
	flying  int
	waiting []*passenger
}

// passenger is a request that waits, or is under way with others.
type passenger struct {
	cmd   *command
	ready chan bool // one element: true if it is to lead, false if cmd has its outcome
}

// process runs cmd, alone or with others. It reports whether others went along: then
// go-redis has tried it once at the most. If ctx ends before the outcome is there,
// cmd must not be touched any more.
func (c *convoy) process(ctx context.Context, cmd *command) (along bool, err error) {
	c.mu.Lock()
	if c.flying < maxFlying {
		c.flying++
		c.mu.Unlock()
		defer c.next()
		return false, c.client.Process(ctx, cmd)
	}
	p := &passenger{cmd, make(chan bool, 1)}
	c.waiting = append(c.waiting, p)
	c.mu.Unlock()
	patience := time.NewTimer(c.halt)
	defer patience.Stop()
	for {
		select {
		case lead := <-p.ready:
			if !lead {
				return true, cmd.Err()
			}
			defer c.next()
			if others := c.board(); len(others) > 0 {
				return true, c.lead(ctx, cmd, others)
			}
			return false, c.client.Process(ctx, cmd)
		case <-patience.C:
			if c.leave(p) {
				return false, c.client.Process(ctx, cmd)
			}
		case <-ctx.Done():
			if !c.leave(p) {
				c.decline(p)
			}
			return true, ctx.Err()
		}
	}
}

// lead sends cmd and the others.
func (c *convoy) lead(ctx context.Context, cmd *command, others []*passenger) error {
	pipe := c.client.Pipeline()
	cmd.once = true // a pipeline is sent again as a whole, or not at all
	_ = pipe.Process(ctx, cmd)
	for _, p := range others {
		p.cmd.once = true
		_ = pipe.Process(ctx, p.cmd) // puts it into the queue
	}
	execute(ctx, pipe)
	for _, p := range others {
		p.ready <- false
	}
	return cmd.Err()
}

// board takes those who wait, up to a bound.
func (c *convoy) board() []*passenger {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.waiting), maxConvoy-1)
	others := c.waiting[:n:n]
	if c.waiting = c.waiting[n:]; len(c.waiting) == 0 {
		c.waiting = nil
	}
	return others
}

// next gives the place of a request that has returned to the first who waits.
func (c *convoy) next() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.flying--
		return
	}
	p := c.waiting[0]
	c.waiting = c.waiting[1:]
	p.ready <- true
}

// leave takes p out of those who wait. It reports false if it is not among them any
// more: then it leads, or is under way with others.
func (c *convoy) leave(p *passenger) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.waiting, p)
	if i < 0 {
		return false
	}
	c.waiting = slices.Delete(c.waiting, i, i+1)
	return true
}

// decline is for a passenger that does not care any more: if it was to lead, the next
// one does.
func (c *convoy) decline(p *passenger) {
	select {
	case lead := <-p.ready:
		if lead {
			c.next()
		}
	default: // under way with others
	}
}
