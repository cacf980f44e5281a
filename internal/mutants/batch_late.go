package mutants

import (
	"context"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// lateMutants get requests and replies wrong that overlap with others.
func lateMutants() []Mutant {
	return []Mutant{
		{
			Name: "BatchResurrects", Flaw: "makes a batch create the entries again that are gone",
			KilledBy: []Kill{{"batch/late-request", "which everybody has unlocked, before a renewal of A arrived"}, {"batch/one-lost", "no renewal has told it so"}},
			design:   batched(batchAnew),
		},
		{
			Name: "RenewsReleased", Flaw: "goes on renewing with every batch all that its client has ever held, and creates again what is gone",
			KilledBy: []Kill{{"batch/others-unmoved", "which everybody has unlocked while A renews others"}},
			design:   design{driver: renewingAll},
		},
		{
			Name: "StaleAnswer", Flaw: "takes the late answer to one batch for that to the next",
			KilledBy: []Kill{{"batch/late-answer", "no renewal has told it so"}},
			design:   design{driver: pipelining},
		},
		{
			Name: "BatchFromReply", Flaw: "counts the deadlines of a batch from its reply",
			KilledBy: []Kill{{"batch/counted-from-request", "before the lease of its dead holder can have ended"}},
			design:   design{driver: countingFromReply},
		},
		{
			Name: "RenewsByOwnCount", Flaw: "sets the expiry to the TTL, or to what it believes is left when it sends the renewal, also where an Extend has come in between",
			Seen:     "PEXPIRE, where the client knows better than the server",
			KilledBy: []Kill{{"renew/late-request", "a renewal of A that was sent before"}},
			design:   inside(flaw{try: tryUntil, renew: renewByOwnCount}),
		},
		{
			Name: "BuriesUndone", Flaw: "remembers the release of a claim only if that had not got the name, and grants it to one that comes late otherwise",
			Seen:     "a tombstone that is written where there was nothing to delete",
			KilledBy: []Kill{{"renew/late-request", "which B had waited for and has unlocked"}},
			design:   ledger(ledgerFlaw{buries: func(_ *ledgerStore, c *ledgerClaim) bool { return !c.won }}),
		},
		{
			Name: "BuriesBriefly", Flaw: "remembers the release of a claim for a minute, and grants it to one that comes later than that",
			Seen:     "tombstones with the TTL of the lock",
			KilledBy: []Kill{{"pair/left-late", "its request arrived after A had given up"}},
			design: ledger(ledgerFlaw{buries: func(s *ledgerStore, c *ledgerClaim) bool {
				time.AfterFunc(time.Minute, func() {
					s.mu.Lock()
					defer s.mu.Unlock()
					delete(s.gone, c.request.Owner)
				})
				return true
			}}),
		},
		{
			Name: "BatchProlongs", Flaw: "looks with one request at all locks of a batch, and with the next has what is there by then last for as long as was asked",
			Seen:     "a pipeline of HGET, and one of PEXPIRE with GT",
			KilledBy: []Kill{{"pair/renewal", "are left of the lease of B"}},
			design:   design{store: ledger(ledgerFlaw{}).store, driver: prolonging},
		},
	}
}

// prolonging renews a batch in two requests, and a single lock in one.
func prolonging(e *env) driver.Driver {
	s := e.mem.(*ledgerDriver).store
	return e.outside(flaw{batch: func(ctx context.Context, d *flawed, batch []driver.Renewal) {
		if len(batch) == 1 {
			renewEach(ctx, batch)
			return
		}
		mine := make([]bool, len(batch)) // guarded by s.mu
		rows := func(f func(i int, h *hold)) error {
			return d.send(ctx, func(context.Context) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				for i := range batch {
					if h := s.row(batch[i].Claim.(*claim).asked.Name, time.Now()).hold; h != nil {
						f(i, h)
					}
				}
				return nil
			})
		}
		err := rows(func(i int, h *hold) { mine[i] = h.request.Owner == batch[i].Claim.(*claim).asked.Owner })
		if err == nil {
			err = rows(func(i int, h *hold) {
				if end := time.Now().Add(batch[i].TTL); mine[i] && end.After(h.expires) {
					h.expires = end
				}
			})
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range batch {
			switch {
			case err != nil:
				batch[i].Err = err
			case !mine[i]:
				batch[i].Err = distlock.ErrLost
			default:
				batch[i].Grant = driver.Grant{TTL: batch[i].TTL}
			}
		}
	}})
}

func batchAnew(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	for i, r := range batch {
		batch[i].Grant, batch[i].Err = renewAnew(ctx, r.Claim.(*claim), r.TTL)
	}
}

// renewingAll never forgets a claim.
func renewingAll(e *env) driver.Driver {
	mu := make(semaphore, 1)
	var all []*claim
	return e.inside(flaw{
		try: func(ctx context.Context, c *claim) (driver.Grant, error) {
			g, err := c.inner.Try(ctx)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, c)
			}
			return g, err
		},
		batch: func(ctx context.Context, _ *flawed, batch []driver.Renewal) {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range all {
				_, _ = renewAnew(ctx, c, c.asked.TTL)
			}
			renewEach(ctx, batch)
		},
	})
}

// pipelining takes each answer for that to the oldest request.
func pipelining(e *env) driver.Driver {
	var mu sync.Mutex
	var late [][]driver.Renewal
	return e.outside(flaw{batch: func(ctx context.Context, d *flawed, batch []driver.Renewal) {
		below := lower(batch)
		answered := make(chan struct{})
		go func() {
			d.inner.Renew(context.WithoutCancel(ctx), below)
			if ctx.Err() != nil {
				mu.Lock()
				defer mu.Unlock()
				late = append(late, below)
			}
			close(answered)
		}()
		select {
		case <-answered:
		case <-ctx.Done():
			for i := range batch {
				batch[i].Err = ctx.Err()
			}
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if len(late) > 0 {
			late = append(late, below)
			below, late = late[0], late[1:]
		}
		for i := range batch {
			if i < len(below) {
				batch[i].Grant, batch[i].Err = below[i].Grant, below[i].Err
			}
		}
	}})
}

// fromLateReply is a lock with a Deadline counted from the reply to its last renewal.
type fromLateReply struct {
	*driver.Handle
	took func() time.Duration // from that renewal to its reply
}

// Deadline implements distlock.Lock.
func (l *fromLateReply) Deadline() time.Time { return l.Handle.Deadline().Add(l.took()) }

// countingFromReply gives out such locks. It is no flaw of what lies below them: the
// engine believes no grant of a renewal beyond what was asked for, from before the call.
func countingFromReply(e *env) driver.Driver {
	var took sync.Map // by the claim that was renewed
	return e.outside(flaw{
		batch: func(ctx context.Context, d *flawed, batch []driver.Renewal) {
			below, sent := lower(batch), time.Now()
			d.inner.Renew(ctx, below)
			for i := range batch {
				batch[i].Grant, batch[i].Err = below[i].Grant, below[i].Err
				if batch[i].Err == nil {
					took.Store(batch[i].Claim, time.Since(sent))
				}
			}
		},
		wrap: func(h *driver.Handle, c *claim) distlock.Lock {
			return &fromLateReply{h, func() time.Duration {
				d, _ := took.LoadOrStore(c, time.Duration(0))
				return d.(time.Duration)
			}}
		},
	})
}
