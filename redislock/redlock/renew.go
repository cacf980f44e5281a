package redlock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
)

// Renew implements driver.Driver: one request to each server, with all entries. Each lock has its
// answer as soon as a majority has given it.
//
// Servers that have lost the entry of a lock, be it that they were down or have hung, get it back
// in the background if a majority still has it. Without that, a lock that is held for days would
// lose one server after the other.
func (d *store) Renew(ctx context.Context, batch []driver.Renewal) {
	keys := make([]string, len(batch))
	args := make([]any, 0, 2*len(batch))
	for i, r := range batch {
		c := r.Claim.(*claim)
		keys[i] = c.key.entry()
		args = append(args, c.mark(), entryTTL(r.TTL))
		c.mu.Lock()
		c.longest = max(c.longest, r.TTL)
		c.mu.Unlock()
	}
	answers := make(chan nodeAnswer, len(d.nodes))
	// Not beyond ctx: the next renewal is to find other connections than those that hang.
	ends, ok := ctx.Deadline()
	if !ok {
		ends = time.Now().Add(maxRequestTimeout)
	}
	d.each(func(i int, n *node) {
		ctx, cancel := context.WithDeadline(d.life, ends)
		defer cancel()
		answer, _, err := n.ask(ctx, renewScript, keys, args...)
		list, ok := answer.([]any)
		if err == nil && (!ok || len(list) != len(batch)) {
			err = n.named(fmt.Errorf("unexpected answer to a renewal: %v", answer))
		}
		answers <- nodeAnswer{i, list, err}
	})
	v := newRenewVotes(d, len(batch))
	asked := 0
	_ = gather(ctx, answers, func(a nodeAnswer) bool { // where ctx ends, result says so
		asked++
		for i := range batch {
			if r := &batch[i]; v.add(a, i) {
				r.Answer(v.result(ctx, r.Claim.(*claim), r.TTL, i))
			}
		}
		return v.open == 0
	})
	for i := range batch {
		if r := &batch[i]; !v.votes[i].over {
			r.Answer(v.result(ctx, r.Claim.(*claim), r.TTL, i))
		}
	}
	d.repairLater(answers, asked, v, batch)
}

// nodeAnswer is what one node says of a batch.
type nodeAnswer struct {
	node int
	list []any
	err  error
}

// renewVotes counts the answers for a batch: yes is held, no is gone.
type renewVotes struct {
	votes []renewVote
	open  int // entries without a decision
}

type renewVote struct {
	ballot
	over    bool
	lacking []int // nodes that have not the entry, and nothing of another
}

func newRenewVotes(d *store, n int) *renewVotes {
	v := &renewVotes{make([]renewVote, n), n}
	for i := range v.votes {
		v.votes[i].ballot = d.ballot()
	}
	return v
}

// add counts what a node says of entry i. It reports whether that decides.
func (v *renewVotes) add(a nodeAnswer, i int) bool {
	e, err, answer := &v.votes[i], a.err, any(nil)
	if err == nil {
		answer = a.list[i]
		err, _ = answer.(error) // the key is of another type
	}
	held := answer == int64(1)
	if e.ballot.add(held, !held, err); answer == int64(0) { // else it is another's
		e.lacking = append(e.lacking, a.node)
	}
	if e.over || !e.carried() && !e.rejected() && e.told < e.nodes {
		return false
	}
	e.over = true
	v.open--
	return true
}

// result is the decision on entry i, or what is known if there is none.
func (v *renewVotes) result(ctx context.Context, c *claim, ttl time.Duration, i int) (driver.Grant, error) {
	switch e := &v.votes[i]; {
	case e.carried():
		return driver.Grant{Token: c.grant.token, TTL: ttl}, nil
	case e.rejected():
		return driver.Grant{}, distlock.ErrLost
	case endpoint.EndOf(ctx) != nil:
		return driver.Grant{}, endpoint.EndOf(ctx)
	default:
		return driver.Grant{}, e.fault("renewed on %d of %d servers, which is no majority", e.yes, e.nodes)
	}
}

// held is a lock that a majority has just renewed.
type held struct {
	claim *claim
	grant stamp
	ttl   time.Duration
}

// repairLater reads the answers that come after a batch was answered, and repairs what is held.
// A server that hangs meanwhile holds up no other, and not for each lock.
func (d *store) repairLater(answers <-chan nodeAnswer, asked int, v *renewVotes, batch []driver.Renewal) {
	holds := make([]held, len(batch))
	for i, r := range batch {
		if v.votes[i].carried() {
			c := r.Claim.(*claim)
			holds[i] = held{c, c.grant, r.TTL}
		}
	}
	d.tasks.Go(func() {
		for ; asked < len(d.nodes); asked++ {
			a := <-answers // each node gives one, within its timeout
			for i := range holds {
				v.add(a, i)
			}
		}
		// What is put back counts for nothing now: the next renewal finds it.
		lacking := make([][]held, len(d.nodes))
		for i, h := range holds {
			for _, n := range v.votes[i].lacking {
				if h.claim != nil {
					lacking[n] = append(lacking[n], h)
				}
			}
		}
		for n, list := range lacking {
			if len(list) > 0 {
				d.tasks.Go(func() { repair(n, list) })
			}
		}
	})
}

// repair puts entries back at node n, until it does not answer any more.
func repair(n int, list []held) {
	for _, h := range list {
		if !h.claim.mend(n) {
			continue
		}
		ok, late, err := h.claim.stamp(n, h.claim.round, h.grant, h.ttl, 1)
		h.claim.ended(n, ok, late)
		if err != nil && !endpoint.Answered(err) {
			return
		}
	}
}

// mark is how the entry of the claim begins, once it is granted.
func (c *claim) mark() string {
	return c.request.Owner + " " + strconv.FormatInt(c.round, 10) + " " + strconv.FormatInt(c.grant.token, 10) + " "
}
