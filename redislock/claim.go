package redislock

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
)

// graveTime is how long a released claim is remembered of which a Try may still be
// under way: longer than an operating system keeps sending what is left in a
// socket that was closed, which is about 100 seconds on Linux.
const graveTime = 5 * time.Minute

// errGivenUp is the answer to a Try that comes after the claim was released.
var errGivenUp = errors.New("redislock: the claim has been released")

// claim is one bid. Its fields are used by one call at a time; wake and
// offer are the bell's as well.
type claim struct {
	driver  *driver
	request distlock.Request
	key     key

	token   int64 // of the grant; 0 if there was none, or it has been released
	unclear bool  // a request of a Try may still arrive
	tries   int   // requests of Try, which have numbers

	channel string        // where it is to be woken
	listens bool          // it was sure to be, when it took its place in the queue or last confirmed it
	wake    chan struct{} // one element: "look again"; buffered so that the bell never blocks; nil until it is needed
	offer   *offer        // nil unless it waits: a held lock is to be small
}

// offer is what a claim that waits may be granted by the release of another, which
// saves a round trip between an Unlock and the Lock that waits for it. The claim cannot
// tell when that release was; but the server tells how long after the latest Try of the
// claim, and the claim knows before when it sent that.
type offer struct {
	number int       // of that Try, from 1; a grant by another is none
	sent   time.Time // before its request
	grant  distlock.Grant
}

// Try implements distlock.Claim.
func (c *claim) Try(ctx context.Context) (distlock.Grant, error) {
	d, ttl := c.driver, millis(c.request.TTL)
	queues, channel := "0", ""
	if !c.request.NoWait {
		queues = "1"
		if c.listens = d.bell.listening(c); c.listens {
			channel = c.channel
		}
		// Of a grant that is no longer fresh, another Try makes a full one.
		if g := d.bell.granted(c); g.Token != 0 && time.Until(g.Sent.Add(g.TTL)) > c.request.TTL*3/4 {
			c.token = g.Token
			d.bell.leave(c)
			return g, nil
		}
	}
	c.tries++
	sent := time.Now()
	cmd, only, err := d.runTogether(ctx, tryScript, false,
		[]string{c.key.entry(), c.key.token(), c.key.queue(), c.key.waiters()},
		c.request.Owner, ttl, c.request.Holder, d.memory, queues, channel, c.tries)
	c.unclear = c.unclear || !only || err != nil
	if err != nil {
		return distlock.Grant{}, err
	}
	answer, err := cmd.Int64()
	switch {
	case err != nil:
		return distlock.Grant{}, err
	case answer > 0:
		c.token = answer
		d.bell.leave(c)
		return distlock.Grant{Token: answer, TTL: time.Duration(ttl) * time.Millisecond}, nil
	case answer == 0:
		return distlock.Grant{}, errGivenUp
	}
	d.bell.offer(c, sent)
	held := &distlock.HeldError{Remaining: time.Duration(-1-answer) * time.Millisecond}
	if c.request.NoWait && c.unclear {
		// Nobody will call Release, and the copy that is still under way may
		// find the name free.
		if err := c.Release(ctx); err != nil {
			return distlock.Grant{}, err
		}
	}
	return distlock.Grant{}, held
}

// Wait implements distlock.Claim. A wake-up between the last Try and this call is in
// the channel already; where nobody was listening yet, the bell wakes the claim as
// soon as it does, and until then the claim looks by itself.
func (c *claim) Wait(ctx context.Context) error {
	var poll <-chan time.Time
	if !c.driver.bell.join(ctx, c) {
		timer := time.NewTimer(deafPoll*3/4 + rand.N(deafPoll/2))
		defer timer.Stop()
		poll = timer.C
	}
	select {
	case <-c.wake:
		return nil
	case <-poll:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Renew implements distlock.Claim.
func (c *claim) Renew(ctx context.Context, ttl time.Duration) (distlock.Grant, error) {
	one := []distlock.Renewal{{Claim: c, TTL: ttl}}
	c.driver.RenewBatch(ctx, one)
	return one[0].Grant, one[0].Err
}

// Release implements distlock.Claim. go-redis must not send it again by itself: the
// second answer would be that nothing was held. The portable half does, and knows
// what to make of that.
func (c *claim) Release(ctx context.Context) error {
	d := c.driver
	d.bell.leave(c)
	var grave int64
	if c.unclear {
		grave = millis(graveTime)
	}
	cmd, _, err := d.runTogether(ctx, releaseScript, true, []string{c.key.entry(), c.key.queue(), c.key.waiters(), c.key.token()},
		c.request.Owner, c.mark(), grave, d.publish, d.memory)
	if err != nil {
		return err
	}
	held, err := cmd.Int64()
	switch {
	case err != nil:
		return err
	case held == 0 && c.token != 0:
		return distlock.ErrLost
	}
	c.token = 0
	return nil
}

// RenewBatch implements distlock.BatchRenewer: one script for all where one server
// has all keys; on a cluster, a script for each, in one pipeline per server.
func (d *driver) RenewBatch(ctx context.Context, batch []distlock.Renewal) {
	if d.cluster == nil && !d.apart.Load() {
		err := d.renewTogether(ctx, batch)
		if !redis.HasErrorPrefix(err, "CROSSSLOT") {
			return
		}
		// There is a cluster behind this address after all: a proxy's.
		d.apart.Store(true)
	}
	d.renewApart(ctx, batch)
}

func (d *driver) renewTogether(ctx context.Context, batch []distlock.Renewal) error {
	keys := make([]string, 0, len(batch)+1)
	args := make([]any, 0, 2*len(batch))
	for _, r := range batch {
		c := r.Claim.(*claim)
		keys = append(keys, c.key.entry())
		args = append(args, c.mark(), millis(r.TTL))
	}
	keys = append(keys, batch[0].Claim.(*claim).key.waiters())
	cmd, _, err := d.run(ctx, renewScript, false, keys, args...)
	var lasts []int64
	if err == nil {
		lasts, err = cmd.Int64Slice()
	}
	if err == nil && len(lasts) != len(batch) {
		err = errors.New("redislock: the answer to a renewal has the wrong length")
	}
	for i := range batch {
		if err != nil {
			batch[i].Err = err
			continue
		}
		renewed(&batch[i], lasts[i])
	}
	return err
}

// renewApart sends a script per claim, all at once. A server that does not know the
// script refuses single commands of a pipeline; those are sent again with its
// source.
func (d *driver) renewApart(ctx context.Context, batch []distlock.Renewal) {
	todo := make([]int, len(batch))
	for i := range todo {
		todo[i] = i
	}
	for _, how := range [][2]string{{"evalsha", renewScript.digest}, {"eval", renewScript.source}} {
		pipe := d.client.Pipeline()
		cmds := make([]*redis.Cmd, len(todo))
		for n, i := range todo {
			c := batch[i].Claim.(*claim)
			cmds[n] = newCommand(ctx, how[0], how[1], false,
				[]string{c.key.entry(), c.key.waiters()}, []any{c.mark(), millis(batch[i].TTL)}).Cmd
			_ = pipe.Process(ctx, cmds[n]) // queues it
		}
		execute(ctx, pipe)
		var unknown []int
		for n, i := range todo {
			lasts, err := cmds[n].Int64Slice()
			switch {
			case redis.HasErrorPrefix(err, "NOSCRIPT"):
				unknown = append(unknown, i)
				batch[i].Err = err
			case err != nil:
				batch[i].Err = fault(ctx, err)
			default:
				renewed(&batch[i], lasts[0])
			}
		}
		if todo = unknown; len(todo) == 0 {
			return
		}
	}
}

// renewed takes in how many ms the entry lasts.
func renewed(r *distlock.Renewal, lasts int64) {
	if lasts == 0 {
		r.Err = distlock.ErrLost
		return
	}
	r.Grant = distlock.Grant{Token: r.Claim.(*claim).token, TTL: time.Duration(lasts) * time.Millisecond}
	r.Err = nil
}

// mark is how the entry of the claim begins, once it is granted.
func (c *claim) mark() string {
	return c.request.Owner + " " + strconv.FormatInt(c.token, 10) + " "
}
