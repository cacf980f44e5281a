package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
	"github.com/distlock-go/distlock/redislock/internal/names"
)

var (
	// errReleased is the answer to a Try that arrives after the claim was released.
	errReleased error = &driver.Fault{Fate: driver.Answered, Err: errors.New("redislock: the claim has been released")}

	// errResent is the error of a Release that was sent twice and found nothing: the first copy
	// may have removed the entry. The engine releases again, and knows that this one was ambiguous.
	errResent = errors.New("redislock: the release was sent twice, its outcome is not known")
)

// claim is one acquisition. One call at a time uses its fields. A request may go on after its
// call. It does not touch the fields: it has a command of its own.
//
//	free:    Try ──▶ token                              Release ──▶ entry deleted
//	held:    Try ──▶ in the queue, Wait, Try …, token   Release ──▶ next waiter is the holder
//	timeout: Try ──▶ no answer: ambiguous               Release ──▶ tombstone, which refuses
//	                                                    the Try if it arrives after all
type claim struct {
	driver  *store
	request driver.Request
	key     key

	token     int64   // of the grant; 0 if there was none, or it has been released
	ambiguous bool    // a request of a Try may still arrive
	tries     int     // requests of Try, which have numbers
	waiter    *waiter // nil unless it waits: a held lock is to be small
}

// Claim implements driver.Driver.
func (d *store) Claim(r driver.Request) driver.Claim {
	return &claim{driver: d, request: r, key: keyOf(d.prefix, r.Name)}
}

// WrapLock implements driver.LockWrapper.
func (d *store) WrapLock(h *driver.Handle, c driver.Claim) distlock.Lock {
	return &Lock{h, c.(*claim).key.entry()}
}

// Try implements driver.Claim. Its fate speaks for all of its requests: a grant may stand though its
// confirmation was refused, and a copy of a request may still arrive though the next one was not sent.
func (c *claim) Try(ctx context.Context) (driver.Grant, error) {
	earlier := c.ambiguous // the fate of an earlier Try has told of that
	g, err := c.try(ctx)
	if err != nil && !errors.Is(err, distlock.ErrHeld) && (c.token != 0 || c.ambiguous && !earlier) {
		err = &driver.Fault{Fate: driver.Unknown, Err: err}
	}
	if err != nil && !errors.Is(err, distlock.ErrHeld) {
		c.stopWaiting(false) // there may be no Release; another Try begins anew
	}
	c.driver.demoted(err)
	return g, err
}

// demoted drops the connections of the subscriber if the server that the requests go to is a replica now.
func (d *store) demoted(err error) {
	if redis.IsReadOnlyError(err) {
		d.subscriber.dropAll(false)
	}
}

func (c *claim) try(ctx context.Context) (driver.Grant, error) {
	d, ttl := c.driver, endpoint.Millis(c.request.TTL)
	queues, channel, test := "0", "", ""
	if !c.request.NoWait {
		queues = "1"
		// Before the request, so that a release after it finds this claim listening.
		g, untested := d.subscriber.enlist(ctx, c, true)
		if g.Token != 0 {
			return c.win(ctx, g)
		}
		// The request names the channel only if the subscription is confirmed. Otherwise
		// a release would rely on a claim that does not hear it.
		if c.waiter != nil && c.waiter.listens {
			channel = c.waiter.channel
		}
		if untested {
			test = d.publish
		}
	}
	c.tries++ // also if it fails: the number tells its grant from those of earlier ones
	answer, late, err := d.sender.Run(ctx, tryScript,
		[]string{c.key.entry(), c.key.token(), c.key.queue(), c.key.waiters()},
		c.request.Owner, ttl, c.request.Holder, d.memory, queues, channel, c.tries, test)
	// This is never taken back: a later answer does not tell what becomes of an earlier copy.
	c.ambiguous = c.ambiguous || late
	if err != nil {
		return driver.Grant{}, err
	}
	return c.decide(ctx, answer)
}

// decide reads what try.lua has answered: a token, 0 if the claim was released before, or what stands in the way.
func (c *claim) decide(ctx context.Context, answer any) (driver.Grant, error) {
	switch token, ok := answer.(int64); {
	case ok && token == 0:
		return driver.Grant{}, errReleased
	case ok && token > 0:
		return c.win(ctx, driver.Grant{Token: token, TTL: time.Duration(endpoint.Millis(c.request.TTL)) * time.Millisecond})
	}
	return driver.Grant{}, c.refused(ctx, answer)
}

// win notes the grant. A renewal and a release name its token. Without the token, a late Try of
// the same owner would bring a lost lock back.
func (c *claim) win(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	c.token = g.Token
	c.stopWaiting(true)
	if c.driver.replicas.needed > 0 {
		return c.confirm(ctx)
	}
	return g, nil
}

// refused returns the refusal that the answer tells of: in how many ms to look again, and the entry.
func (c *claim) refused(ctx context.Context, answer any) error {
	var left, text any
	if list, _ := answer.([]any); len(list) == 2 {
		left, text = list[0], list[1]
	}
	ms, ok1 := left.(int64)
	entry, ok2 := text.(string)
	if !ok1 || !ok2 {
		c.ambiguous = true // such as QUEUED, where somebody has begun a MULTI on the connection: it may be applied later
		return fmt.Errorf("redislock: unexpected answer to an acquisition: %v", answer)
	}
	c.token = 0 // if there was a grant, it was not confirmed, and is over
	held := &driver.Held{HeldError: distlock.HeldError{Remaining: time.Duration(ms) * time.Millisecond}}
	if e, ok := names.ParseEntry(entry); ok {
		held.Holder, held.Token = e.Holder, e.Token
	}
	if c.request.NoWait {
		if !c.ambiguous {
			return held
		}
		// The engine does not release a refused TryLock. The other copy of the request is
		// still under way and may find the name free.
		if err := c.Release(ctx); err != nil {
			return err
		}
		return held
	}
	if c.waiter == nil {
		c.waiter = c.driver.subscriber.newWaiter(c.key, c.request)
	}
	if c.waiter.listens {
		c.waiter.number.Store(int64(c.tries))
	}
	held.NoWake = !c.waiter.relies()
	return held
}

// stopWaiting forgets the waiter here; in the queue of the server, the grant or the release
// removes it.
func (c *claim) stopWaiting(granted bool) {
	if c.waiter != nil {
		c.driver.subscriber.retire(c.waiter, granted)
		c.waiter = nil
	}
}

// Release implements driver.Claim. It is the same whether the claim holds the name, waits, or has
// an ambiguous request. One script removes what there is, so that a grant in the middle of a Wait
// is released as well.
func (c *claim) Release(ctx context.Context) error {
	// The waiter leaves before the request: a message that comes from now on is not taken for
	// a grant.
	d := c.driver
	c.stopWaiting(false)
	var tombstone int64
	if c.ambiguous {
		tombstone = endpoint.Millis(driver.MaxLate)
	}
	answer, late, err := d.sender.Run(ctx, releaseScript,
		[]string{c.key.entry(), c.key.queue(), c.key.waiters(), c.key.token()},
		c.request.Owner, c.mark(), tombstone, d.publish, d.memory)
	if err != nil {
		d.demoted(err) // the connections of go-redis are made anew, so no Try may come to hear of it
		return err
	}
	held, ok := answer.(int64)
	switch {
	case !ok:
		return fmt.Errorf("redislock: unexpected answer to a release: %v", answer)
	// Before ErrLost: the first copy may have removed the entry, and then nothing was lost.
	case held == 0 && c.token != 0 && late:
		return errResent
	case held == 0 && c.token != 0:
		return distlock.ErrLost
	}
	c.token = 0
	return nil
}

// mark is how the entry of the claim begins, once it is granted.
func (c *claim) mark() string {
	return c.request.Owner + " " + strconv.FormatInt(c.token, 10) + " "
}

// Renew implements driver.Driver: one script for all where one server has all keys; on a
// cluster a script for each, in one pipeline to each master.
func (d *store) Renew(ctx context.Context, batch []driver.Renewal) {
	if d.cluster != nil {
		d.renewByMaster(ctx, batch)
		return
	}
	split := d.split.Load()
	if !split {
		d.renew(ctx, d.client, [][]driver.Renewal{batch})
		split = redis.HasErrorPrefix(batch[0].Err, "CROSSSLOT") // there is a cluster behind this address after all: a proxy's
	}
	var alone [][]driver.Renewal
	for i := range batch {
		r := &batch[i]
		// A proxy before several servers sends a script to the server of its first key, which has lost those of others.
		if split || len(batch) > 1 && errors.Is(r.Err, distlock.ErrLost) {
			alone = append(alone, batch[i:i+1])
		} else {
			r.Answer(r.Grant, r.Err) // before another request, which it need not wait for
		}
	}
	if len(alone) > 0 {
		d.renew(ctx, d.client, alone)
	}
	for _, one := range alone {
		if one[0].Err == nil {
			d.split.Store(true)
		}
		one[0].Answer(one[0].Grant, one[0].Err)
	}
}

// maxRenewal bounds what a master has for its part, where the context does not.
const maxRenewal = 10 * time.Second

// renewByMaster renews the claims of each master side by side and in a part of the time. So a
// master that hangs delays only its own claims.
func (d *store) renewByMaster(ctx context.Context, batch []driver.Renewal) {
	ends := time.Now().Add(maxRenewal)
	if deadline, ok := ctx.Deadline(); ok {
		ends = time.Now().Add(time.Until(deadline) * 3 / 4) // the rest is for the answers to be taken in
	}
	find, cancel := endpoint.Until(ctx, ends, "the cluster")
	defer cancel()
	masters := make(map[string][][]driver.Renewal) // by address
	clients := make(map[string]redis.UniversalClient)
	for i := range batch {
		addr, via := "", d.client
		if master, err := d.cluster.MasterForKey(find, batch[i].Claim.(*claim).key.entry()); err == nil {
			addr = master.Options().Addr
			if d.replicas.needed > 0 {
				via = master // the client of the cluster follows a slot that moves, and would send WAIT to any server
			}
		} else if d.replicas.needed > 0 {
			batch[i].Answer(driver.Grant{}, endpoint.Fault(find, err))
			continue
		}
		masters[addr], clients[addr] = append(masters[addr], batch[i:i+1]), via
	}
	var all sync.WaitGroup
	for addr, groups := range masters {
		all.Go(func() {
			part, cancel := endpoint.Until(ctx, ends, cmp.Or(addr, "the cluster"))
			defer cancel()
			d.renew(part, clients[addr], groups)
			for _, group := range groups { // each has its entries for itself
				group[0].Answer(group[0].Grant, group[0].Err) // the other masters may hang
			}
		})
	}
	all.Wait()
}

// renew runs a script for each group of claims, all in one pipeline, and leaves the outcome in the batch. It looks at the
// claims of these groups alone: others may be answered meanwhile.
func (d *store) renew(ctx context.Context, via redis.UniversalClient, groups [][]driver.Renewal) {
	least := distlock.MaxTTL
	calls := make([]*endpoint.Call, len(groups))
	for n, group := range groups {
		calls[n] = &endpoint.Call{Script: renewScript}
		for _, r := range group {
			c := r.Claim.(*claim)
			calls[n].Keys = append(calls[n].Keys, c.key.entry())
			calls[n].Args = append(calls[n].Args, c.mark(), endpoint.Millis(r.TTL))
			least = min(least, r.TTL)
		}
	}
	d.sender.RunAll(ctx, via, calls, func(pipe redis.Pipeliner) *redis.Cmd { return d.replicas.ask(ctx, pipe, least/3) })
	for n, group := range groups {
		lasts, err := []any(nil), calls[n].Err
		if err == nil {
			lasts, err = answers(calls[n].Answer, len(group))
		}
		for i := range group {
			r := &group[i]
			if r.Err = err; err == nil {
				renewed(r, lasts[i])
			}
			if r.Err == nil {
				r.Err = endpoint.Fault(ctx, d.replicas.judge(calls[n].Asked))
			}
		}
	}
}

// renewed notes for how many ms the entry lasts. An earlier renewal may have made that longer
// than was asked for. So may a clock of the server that has gone back: it may come forward again,
// so the lock counts on no more than it asked for.
func renewed(r *driver.Renewal, lasts any) {
	ms, ok := lasts.(int64)
	switch err, failed := lasts.(error); {
	case failed:
		r.Err = err
	case !ok:
		r.Err = fmt.Errorf("redislock: unexpected answer to a renewal: %v", lasts)
	case ms == 0:
		r.Err = distlock.ErrLost
	default:
		ttl := time.Duration(min(ms, endpoint.Millis(r.TTL))) * time.Millisecond
		r.Grant = driver.Grant{Token: r.Claim.(*claim).token, TTL: ttl}
	}
}
