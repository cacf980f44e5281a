package redlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
	"github.com/distlock-go/distlock/redislock/internal/names"
)

// maxInspected is how many names share a request.
const maxInspected = 200

// Inspect implements driver.Inspector.
func (d *store) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	views, err := d.look(ctx, []string{name})
	if err != nil {
		return distlock.Status{}, err
	}
	return views[0].status(name)
}

// List implements driver.Inspector. The servers are searched for names, and each name is asked
// for by itself: a majority decides. A key of another type is no lock.
func (d *store) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	found, err := d.scan(ctx, names.Pattern(d.prefix, prefix))
	if err != nil {
		return nil, err
	}
	var list []distlock.Status
	for part := range slices.Chunk(found, maxInspected) {
		views, err := d.look(ctx, part)
		if err != nil {
			return nil, err
		}
		for i, v := range views {
			st, err := v.status(part[i])
			switch {
			case err != nil && strings.Contains(err.Error(), "WRONGTYPE"): // in Redis 6.2, not at the beginning
			case err != nil:
				return nil, err
			case st.Held:
				list = append(list, st)
			}
		}
	}
	return list, nil
}

// scan returns the names of which a server has an entry, sorted. A held name has one on a
// majority, so it is on one of any majority that answers.
func (d *store) scan(ctx context.Context, match string) ([]string, error) {
	type part struct {
		found []string
		err   error
	}
	parts := make(chan part, len(d.nodes))
	d.each(func(_ int, n *node) {
		found, err := n.scan(ctx, d.prefix, match)
		parts <- part{found, n.named(err)}
	})
	var all []string
	b := d.ballot()
	err := gather(ctx, parts, func(p part) bool {
		b.add(true, false, p.err)
		all = append(all, p.found...)
		return b.carried() || b.broken()
	})
	if err != nil {
		return nil, err
	}
	if !b.carried() {
		return nil, b.fault("no majority answers")
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// scan shares the pipelines, page by page: many scans would occupy all connections.
func (n *node) scan(ctx context.Context, prefix, match string) (found []string, err error) {
	for cursor := any("0"); ; {
		r := endpoint.NewRequest(ctx, "scan", cursor, "match", match, "count", 1000)
		if err := n.sender.Send(ctx, r); err != nil {
			return nil, endpoint.Fault(ctx, err)
		}
		page, _ := r.Val().([]any)
		if len(page) != 2 {
			return nil, fmt.Errorf("unexpected answer to SCAN: %v", page)
		}
		keys, _ := page[1].([]any)
		for _, key := range keys {
			text, _ := key.(string)
			if name, ok := names.NameOf(prefix, text); ok {
				found = append(found, name)
			}
		}
		if cursor = page[0]; cursor == "0" {
			return found, nil
		}
	}
}

// view is what the servers say of a name.
type view struct {
	ballot
	holds []hold
	token int64 // the last one
}

// hold is an entry with a token, and for how long each server that has it keeps it, in ms.
type hold struct {
	names.Entry
	lefts []int64
}

// look asks the servers for names. It does not wait for those that have not answered lately, if
// the others are a majority.
func (d *store) look(ctx context.Context, list []string) ([]view, error) {
	var keys []string
	for _, name := range list {
		k := keyOf(d.prefix, name)
		keys = append(keys, k.entry(), k.token())
	}
	answers := make(chan nodeAnswer, len(d.nodes))
	d.each(func(i int, n *node) {
		answer, _, err := n.ask(d.life, inspectScript, keys)
		found, ok := answer.([]any)
		if err == nil && (!ok || len(found) != 3*len(list)) {
			err = n.named(fmt.Errorf("unexpected answer to an inspection: %v", answer))
		}
		answers <- nodeAnswer{i, found, err}
	})
	views := make([]view, len(list))
	for i := range views {
		views[i].ballot = d.ballot()
	}
	// Not for a majority only: a lease may have been prolonged on some and not yet on others.
	awaited := d.awaited()
	err := gather(ctx, answers, func(a nodeAnswer) bool {
		awaited.answered(a.node)
		for i := range views {
			views[i].add(a, 3*i)
		}
		return awaited.missing == 0
	})
	return views, err
}

func (v *view) add(a nodeAnswer, at int) {
	err := a.err
	if err == nil {
		err, _ = a.list[at].(error) // the key is of another type
	}
	if v.ballot.add(true, false, err); err != nil {
		return
	}
	text, _ := a.list[at].(string)
	left, _ := a.list[at+1].(int64)
	last, _ := a.list[at+2].(string)
	token, _ := strconv.ParseInt(last, 10, 64)
	v.token = max(v.token, token)
	e, ok := parseEntry(text)
	if text == "" || ok && e.Token == 0 {
		return // free, or somebody tries
	}
	if !ok { // An entry counts as held even if no script has written it.
		e = names.Entry{Holder: text}
	}
	for i := range v.holds {
		if h := &v.holds[i]; h.Owner == e.Owner && h.Token == e.Token && h.Holder == e.Holder {
			h.lefts = append(h.lefts, left)
			return
		}
	}
	v.holds = append(v.holds, hold{Entry: e, lefts: []int64{left}})
}

// owner returns that of the hold with this token; "" if no server has shown it.
func (v *view) owner(token int64) string {
	for _, h := range v.holds {
		if h.Token == token {
			return h.Owner
		}
	}
	return ""
}

// status is what a majority says. If it cannot be told whether a name is held, because servers do
// not answer, it counts as held: nobody else can get it.
func (v *view) status(name string) (distlock.Status, error) {
	st := distlock.Status{Name: name, Token: v.token, Waiters: -1}
	if !v.carried() {
		return st, v.fault("no majority answers")
	}
	unknown := v.nodes - v.yes
	for _, h := range v.holds {
		if len(h.lefts)+unknown < v.quorum {
			continue
		}
		slices.Sort(h.lefts)
		slices.Reverse(h.lefts)
		// Until fewer than a majority have it. The entries last longer than the lease.
		left := time.Duration(max(h.lefts[min(v.quorum, len(h.lefts))-1], 0)) * time.Millisecond
		left = max(left-drift(0), 0) * 100 / 101
		return distlock.Status{Name: name, Held: true, Holder: h.Holder, Token: cmp.Or(h.Token, v.token), AcquiredAt: h.Acquired, Remaining: left, Waiters: -1}, nil
	}
	return st, nil
}

// Break implements driver.Breaker. The scripts compare the token. So a Break ends no later hold
// if it arrives twice or late. It ends the hold if no majority is left of it, nor can be repaired:
// servers without the entry must know its owner, too, so it is asked for first.
func (d *store) Break(ctx context.Context, name string, token int64) error {
	views, err := d.look(ctx, []string{name})
	if err != nil {
		return err
	}
	owner := views[0].owner(token)
	if _, err := views[0].status(name); err != nil {
		return err
	} else if owner == "" {
		return distlock.ErrLost // a majority would have shown it
	}
	k := keyOf(d.prefix, name)
	type answer struct {
		ended, late bool
		err         error
	}
	answers := make(chan answer, len(d.nodes))
	d.each(func(_ int, n *node) {
		val, late, err := n.ask(d.life, breakScript, []string{k.entry(), k.token(), k.tombstone(owner)}, token, d.memory, endpoint.Millis(driver.MaxLate))
		answers <- answer{val == int64(1), late, err}
	})
	b := d.ballot()
	err = gather(ctx, answers, func(a answer) bool {
		b.add(a.ended, !a.late, a.err) // late: the first copy may have ended it
		return b.carried() || b.rejected() || b.told == b.nodes
	})
	switch {
	case err != nil:
		return err
	case b.rejected():
		return distlock.ErrLost
	case b.broken():
		return b.fault("no majority answers")
	}
	return nil
}
