package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/oracle"
)

// judge asks the oracles about the record: intervals of belief, deadlines and tokens.
// The model is not asked, as its search would be given up on a record of this size.
func (r *run) judge() {
	for _, f := range oracle.JudgeRules(r.record.History()).Findings {
		if f.Clause == "H1" && !r.Exclusive {
			r.result.Overlaps++
			continue
		}
		r.finding("%s: %s: %s", f.Clause, f.Name, f.Text)
	}
}

// leftovers looks whether everything that the run has locked is free, with a client of
// its own. A process that was cut off when it gave up its locks leaves them until its
// TTL has passed; nothing may stay for longer.
func (r *run) leftovers(ctx context.Context) {
	l, err := r.Open(ctx, r.Clients)
	if err != nil {
		r.finding("after everything was mended, a client could not be opened: %v", err)
		return
	}
	defer l.Close()
	bound := r.TTL + r.Lag + recovery
	began := time.Now()
	for i := range r.Names {
		name := fmt.Sprintf("chaos/%d", i)
		wait, cancel := context.WithTimeout(ctx, bound-time.Since(began))
		lock, err := l.Lock(wait, name, distlock.TTL(r.TTL))
		cancel()
		if err != nil {
			r.finding("leftovers: %s is not free %v after all clients were closed: %v", name, bound, err)
			continue
		}
		if !r.resource.write(name, lock.Token()) {
			r.finding("F1: %s: the token %d of a new holder is lower than that of an earlier one", name, lock.Token())
		}
		if err := lock.Unlock(ctx); err != nil && ctx.Err() == nil {
			r.finding("leftovers: %s could not be unlocked: %v", name, err)
		}
	}
	held, err := distlock.List(ctx, l, "chaos/")
	if err != nil || len(held) > 0 {
		r.finding("leftovers: %d names are held by nobody (%v, error %v)", len(held), held, err)
	}
}
