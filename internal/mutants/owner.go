package mutants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

func ownerMutants() []Mutant {
	return []Mutant{
		{
			Name: "BlindUnlock", Flaw: "removes the entry on Unlock, whoever it belongs to",
			Seen:     "ShedLock #74",
			KilledBy: []Kill{{"after/expires", "two holders at once"}, {"owner/same-client-stale", "although A held it until"}},

			design: inside(flaw{release: releaseBlindly}),
		},
		{
			Name: "UnlockLate", Flaw: "leaves a lease that is nearly over to end by itself, instead of an Unlock",
			KilledBy: []Kill{{"owner/unlock-late", "which A has unlocked"}},
			design: inside(flaw{release: func(ctx context.Context, c *claim) error {
				if age, ttl := time.Since(c.began), c.asked.TTL; ttl-ttl/32 < age && age < ttl {
					return nil
				}
				return c.inner.Release(ctx)
			}}),
		},
		{
			Name: "CheckThenDelete", Flaw: "compares the owner with one request and deletes with a second",
			Seen:     "GET, compare, DEL, where a script was thought too much",
			KilledBy: []Kill{{"pair/unlock", "looks in one step and acts in another"}, {"pair/unlock-broken", "looks in one step and acts in another"}, {"pair/close", "looks in one step and acts in another"}},

			design: outside(flaw{release: checkThenDelete}),
		},
		{
			Name: "SessionReentrant", Flaw: "identifies the owner by the client's session, so that a client is granted what it holds",
			Seen:     "etcd's concurrency.Mutex, for two of one session, measured",
			KilledBy: []Kill{{"core/same-client-contends", "was granted"}, {"reent/counted", "another owner of the same Locker tried"}},

			design: inside(flaw{request: func(e *env, r *driver.Request) { r.Owner = fmt.Sprint("session ", e.id) }}),
		},
		{
			Name: "StaleSelfUnlock", Flaw: "removes on Unlock what the client holds, not what this lock is",
			Seen:     "etcd #22082: the key is deleted by its name",
			KilledBy: []Kill{{"owner/same-client-stale", "although A held it until"}},

			design: inside(flaw{try: tryAndTell, release: releaseByClient}),
		},
	}
}

// answerMutants misread what the store has said.
func answerMutants() []Mutant {
	return []Mutant{
		{
			Name: "DownMeansBusy", Flaw: "answers that the name is held when the server cannot be reached",
			Seen:     "every function that returns a bool for it",
			KilledBy: []Kill{{"core/down-is-not-held", "nobody holds"}, {"pair/request-lost", "nobody but A itself had asked for it"}},

			design: outside(flaw{try: tryOrBusy}),
		},
		{
			Name: "UpMeansGot", Flaw: "takes an update that has matched a row for one that has changed it",
			Seen:     "MySQL with clientFoundRows, measured",
			KilledBy: []Kill{{"core/exclusive", "was granted"}},

			design: inside(flaw{try: tryOrClaim}),
		},
		{
			Name: "OldSessionNode", Flaw: "adopts the entry of a former session of its own, which is about to expire",
			Seen:     "CURATOR-604",
			KilledBy: []Kill{{"fault/lapse-and-return", "oracle"}},

			design: inside(flaw{try: tryAdopting}),
		},
		{
			Name: "ConnectionLock", Flaw: "holds the name for as long as its connection lasts, and connects again without a word",
			Seen:     "GET_LOCK and advisory locks behind a pool",
			KilledBy: []Kill{{"pair/renewal", "two holders at once"}, {"after/expires", "before the lease of A could end"}},

			design: inside(flaw{try: tryIfConnected}),
		},
		{
			Name: "Impatient", Flaw: "gives up a request after 20 ms, whatever its caller has said",
			KilledBy: []Kill{{"fault/latency", "a network that takes"}},

			design: outside(impatient(20 * time.Millisecond)),
		},
		{
			Name: "RetryNonIdempotent", Flaw: "repeats a request whose reply was lost, and takes its own success for somebody else's",
			Seen:     "go-redis #2985: SETNX repeated by the client library",
			KilledBy: []Kill{{"pair/reply-lost", "nobody but A itself had asked for it"}},

			design: outside(flaw{try: tryTwice}),
		},
	}
}

func releaseBlindly(ctx context.Context, c *claim) error {
	if !c.won {
		return c.inner.Release(ctx)
	}
	err := remove(ctx, c.driver.mem, c.asked.Name)
	if errors.Is(err, distlock.ErrLost) {
		return nil
	}
	return err
}

func checkThenDelete(ctx context.Context, c *claim) error {
	if !c.won {
		return c.inner.Release(ctx)
	}
	mem, name := c.driver.mem, c.asked.Name
	own := make(chan bool, 1) // one element: the caller may have left when the answer comes
	token := c.token
	err := c.driver.send(ctx, func(ctx context.Context) error {
		st, err := mem.Inspect(ctx, name)
		own <- st.Held && st.Token == token
		return err
	})
	switch {
	case err != nil:
		return err
	case !<-own:
		return distlock.ErrLost
	}
	return c.driver.send(ctx, func(ctx context.Context) error { return remove(ctx, mem, name) })
}

// tryAndTell notes the client that holds the name.
func tryAndTell(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err == nil {
		c.driver.with(c.asked.Name, func(e *entry) { e.client = c.driver.env })
	}
	return g, err
}

func releaseByClient(ctx context.Context, c *claim) error {
	if !c.won {
		return c.inner.Release(ctx)
	}
	var mine bool
	c.driver.with(c.asked.Name, func(e *entry) { mine = e.client == c.driver.env })
	if !mine {
		return distlock.ErrLost
	}
	return remove(ctx, c.driver.mem, c.asked.Name)
}

func tryOrBusy(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err != nil && !errors.Is(err, distlock.ErrHeld) {
		return driver.Grant{}, &distlock.HeldError{}
	}
	return g, err
}

func tryOrClaim(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if !errors.Is(err, distlock.ErrHeld) {
		return g, err
	}
	st, err := c.driver.mem.Inspect(ctx, c.asked.Name)
	return driver.Grant{Token: st.Token + 1, TTL: c.asked.TTL}, err
}

// tryAdopting takes over what this client has let run down: it is not renewed, so it
// must be of an earlier session.
func tryAdopting(ctx context.Context, c *claim) (driver.Grant, error) {
	st, err := c.driver.mem.Inspect(ctx, c.asked.Name)
	if err != nil {
		return driver.Grant{}, err
	}
	var mine bool
	c.driver.with(c.asked.Name, func(e *entry) { mine = e.client == c.driver.env })
	if mine && st.Held && st.Remaining < c.asked.TTL/20 {
		return driver.Grant{Token: st.Token, TTL: c.asked.TTL}, nil
	}
	return tryAndTell(ctx, c)
}

func tryTwice(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err == nil || errors.Is(err, distlock.ErrHeld) || ctx.Err() != nil {
		return g, err
	}
	again := c.asked
	again.Owner = fmt.Sprint("retry at ", time.Now().UnixNano())
	return c.driver.inner.Claim(again).Try(ctx)
}

// tryIfConnected drops the entry of a client if its link has been disturbed since the
// grant.
func tryIfConnected(ctx context.Context, c *claim) (driver.Grant, error) {
	var gone bool
	c.driver.with(c.asked.Name, func(e *entry) { gone = e.client != nil && e.client.link.Fired() > e.faults })
	if gone {
		_ = remove(ctx, c.driver.mem, c.asked.Name) // ErrLost if it has ended before
	}
	g, err := c.inner.Try(ctx)
	if err == nil {
		faults := c.driver.link.Fired()
		c.driver.with(c.asked.Name, func(e *entry) { e.client, e.faults = c.driver.env, faults })
	}
	return g, err
}

// impatient bounds every request.
func impatient(limit time.Duration) flaw {
	return flaw{
		try: func(ctx context.Context, c *claim) (driver.Grant, error) {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			return c.inner.Try(ctx)
		},
		renew: func(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			return c.inner.Renew(ctx, ttl)
		},
		release: func(ctx context.Context, c *claim) error {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			return c.inner.Release(ctx)
		},
	}
}
