package redislock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/redislock/internal/names"
)

// Inspect implements distlock.Inspector. One script reads both, so that entry and waiters are of
// the same moment.
func (d *store) Inspect(ctx context.Context, name string) (st distlock.Status, err error) {
	k := keyOf(d.prefix, name)
	cmd, _, err := d.run(ctx, d.alone, inspectScript, []string{k.entry(), k.token(), k.waiters()})
	if err != nil {
		return st, err
	}
	answer, err := answers(cmd, 4)
	if err != nil {
		return st, err
	}
	return statusOf(name, answer)
}

// statusOf reads what inspect.lua returns.
func statusOf(name string, answer []any) (st distlock.Status, err error) {
	text, ok1 := answer[0].(string)
	lasts, ok2 := answer[1].(int64)
	token, ok3 := answer[2].(string)
	waiters, ok4 := answer[3].(int64)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return st, fmt.Errorf("redislock: unexpected answer to an inspection: %v", answer)
	}
	st.Name, st.Waiters = name, int(waiters)
	st.Token, _ = strconv.ParseInt(token, 10, 64)
	if text == "" {
		return st, nil
	}
	st.Held = true
	st.Remaining = time.Duration(max(lasts, 0)) * time.Millisecond
	// An entry counts as held even if no script has written it. Its text is shown as the
	// holder then.
	st.Holder = text
	if e, ok := names.ParseEntry(text); ok {
		st.Token, st.AcquiredAt, st.Holder = e.Token, e.Acquired, e.Holder
	}
	return st, nil
}

// List implements distlock.Inspector. It asks for each name by itself, because SCAN returns keys
// that may have expired since. A key of another type is no lock.
func (d *store) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	found, err := d.scan(ctx, names.Pattern(d.prefix, prefix))
	if err != nil {
		return nil, err
	}
	var list []distlock.Status
	for _, name := range found {
		st, err := d.Inspect(ctx, name)
		switch {
		case err != nil && strings.Contains(err.Error(), "WRONGTYPE"): // in Redis 6.2, not at the beginning
		case err != nil:
			return nil, err
		case st.Held:
			list = append(list, st)
		}
	}
	return list, nil
}

// scan returns the names of the entries that match, sorted. It is detached, because the client
// does not heed a cancelled context.
func (d *store) scan(ctx context.Context, match string) ([]string, error) {
	return driver.Detach(ctx, func() ([]string, error) {
		var mu sync.Mutex
		var found []string
		err := d.eachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			it := master.Scan(ctx, 0, match, 1000).Iterator()
			for it.Next(ctx) {
				if name, ok := names.NameOf(d.prefix, it.Val()); ok {
					mu.Lock()
					found = append(found, name)
					mu.Unlock()
				}
			}
			return it.Err()
		})
		slices.Sort(found)
		return slices.Compact(found), fault(ctx, err, false) // SCAN may return a key twice
	})
}

// eachMaster calls f for every server that may hold keys, side by side.
func (d *store) eachMaster(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	if d.cluster != nil {
		return d.cluster.ForEachMaster(ctx, f)
	}
	return f(ctx, d.client.(*redis.Client)) // newStore accepts no other
}

// Break implements distlock.Breaker. The script compares the token. So a Break ends no later hold
// if it arrives twice or late.
func (d *store) Break(ctx context.Context, name string, token int64) error {
	k := keyOf(d.prefix, name)
	cmd, resent, err := d.run(ctx, d.alone, breakScript, []string{k.entry(), k.token(), k.queue(), k.waiters()},
		token, d.memory, d.publish)
	if err != nil {
		return err
	}
	ended, err := cmd.Int64()
	if err == nil && ended == 0 && !resent { // or the first copy may have ended the hold
		err = distlock.ErrLost
	}
	return err
}
