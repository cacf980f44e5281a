package redislock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
)

// How a name changes hands. A waiter subscribes first and looks then, so no release falls
// between the two; and a release makes the waiter the holder before it says so.
//
//	waiter                           server                                 holder
//	Try, no channel yet ───────────▶ last in the queue, for 5 s
//	  ◀── held, NoWake ───────────── (the engine's backoff looks meanwhile)
//	Wait: SUBSCRIBE ───────────────▶
//	  ◀── confirmed ────────────────
//	Try 2, channel, test ──────────▶ queue: lease 30 s, channel, TTL, "2"
//	  ◀── "" on the channel ──────── (a script's message arrives: the waiter relies on it)
//	  ◀── held ─────────────────────
//	Wait                                                    ◀────────── Release
//	                                 entry = waiter, for its whole TTL
//	  ◀── "owner token 2 waited" ───
//	Try: grants, without a request   (lost message: the next Try finds the entry)
//
// A message is a hint: it gets lost when a connection breaks. A waiter is also woken when its
// subscription is confirmed and when its connection is lost. It then tries, waits, and so
// subscribes again: there is no other repair.
//
// Wait implements driver.Claim. It subscribes if nobody has yet. A wake-up between the last
// Try and this call is in the channel already.
func (c *claim) Wait(ctx context.Context) error {
	c.driver.subscriber.enlist(ctx, c, false)
	select {
	case <-c.waiter.wake:
		c.waiter.asleep = false
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waiter is a claim in the queue. sent and grant are under the mutex of the subscriber, the other fields
// belong to one call at a time.
type waiter struct {
	owner   string
	ttl     time.Duration
	channel string        // where it is woken
	wake    chan struct{} // one element, "look again"; buffered so that the subscriber never blocks
	ch      *channel      // where it is enlisted; nil if nowhere
	listens bool          // it was subscribed before its latest Try, which left the channel in its place
	asleep  bool          // it relies on a wake-up, and none has come

	number atomic.Int64 // of the latest Try that was answered; 0 takes no grant
	sent   time.Time    // before the request of the latest Try
	grant  driver.Grant // by a release
}

// relies reports whether a release will wake w.
func (w *waiter) relies() bool { return w.listens && w.ch != nil && w.ch.state.Load() == proven }

func (w *waiter) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// accept reads the grant "<token> <number> <waited>" of a release, if it is by the latest
// Try that was answered: a grant by an earlier one may be over, and the next Try tells. The
// waiter cannot tell when the release was; but the server says how many ms after that Try,
// and the lease counts from there. If that is more than this machine has measured, by more than
// the margin of a lease allows for, the server's clock has jumped forward: then the next Try tells.
func (w *waiter) accept(grant string) {
	part := strings.Split(grant, " ")
	if len(part) != 3 {
		return
	}
	token, err1 := strconv.ParseInt(part[0], 10, 64)
	number, err2 := strconv.ParseInt(part[1], 10, 64)
	waited, err3 := strconv.ParseUint(part[2], 10, 31)
	if errors.Join(err1, err2, err3) != nil || token <= 0 || number == 0 || number != w.number.Load() {
		return
	}
	later, here := time.Duration(waited)*time.Millisecond, time.Since(w.sent)
	if later-here > min(w.ttl/100, time.Second) {
		return
	}
	w.grant = driver.Grant{Token: token, TTL: time.Duration(endpoint.Millis(w.ttl)) * time.Millisecond, Sent: w.sent.Add(min(later, here))}
}
