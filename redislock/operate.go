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
)

// Inspect implements distlock.Inspector.
func (d *driver) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	st, _, err := d.inspect(ctx, name)
	return st, err
}

// inspect returns the entry as well, "" if there is none.
func (d *driver) inspect(ctx context.Context, name string) (st distlock.Status, entry string, err error) {
	k := keyOf(d.prefix, name)
	cmd, _, err := d.run(ctx, inspectScript, false, []string{k.entry(), k.token(), k.waiters()})
	if err != nil {
		return st, "", err
	}
	answer, err := cmd.Slice()
	if err != nil {
		return st, "", err
	}
	var ok1 bool
	entry, ok1 = answer[0].(string)
	lasts, ok2 := answer[1].(int64)
	token, ok3 := answer[2].(string)
	waiters, ok4 := answer[3].(int64)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return st, "", fmt.Errorf("redislock: unexpected answer to an inspection: %v", answer)
	}
	st.Name, st.Waiters = name, int(waiters)
	st.Token, _ = strconv.ParseInt(token, 10, 64)
	if entry == "" {
		return st, "", nil
	}
	st.Held = true
	st.Remaining = time.Duration(max(lasts, 0)) * time.Millisecond
	st.Holder = entry
	if part := strings.SplitN(entry, " ", 4); len(part) == 4 {
		st.Token, _ = strconv.ParseInt(part[1], 10, 64)
		acquired, _ := strconv.ParseInt(part[2], 10, 64)
		st.AcquiredAt, st.Holder = time.UnixMicro(acquired), part[3]
	}
	return st, entry, nil
}

// List implements distlock.Inspector.
func (d *driver) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	names, err := d.scan(ctx, pattern(d.prefix, prefix))
	if err != nil {
		return nil, err
	}
	var list []distlock.Status
	for _, name := range names {
		st, err := d.Inspect(ctx, name)
		if err != nil {
			return nil, err
		}
		if st.Held {
			list = append(list, st)
		}
	}
	return list, nil
}

// scan returns the names whose entries match, sorted.
func (d *driver) scan(ctx context.Context, match string) ([]string, error) {
	var mu sync.Mutex
	var names []string
	err := eachMaster(ctx, d.client, func(ctx context.Context, master redis.Cmdable) error {
		it := master.Scan(ctx, 0, match, 1000).Iterator()
		for it.Next(ctx) {
			if name, ok := nameOf(d.prefix, it.Val()); ok {
				mu.Lock()
				names = append(names, name)
				mu.Unlock()
			}
		}
		return it.Err()
	})
	slices.Sort(names)
	return slices.Compact(names), fault(ctx, err) // SCAN may return a key twice
}

// eachMaster calls f for every server that may hold keys, at the same time.
func eachMaster(ctx context.Context, client redis.UniversalClient, f func(context.Context, redis.Cmdable) error) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return f(ctx, client)
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return f(ctx, c) })
}

// Break implements distlock.Breaker. It looks first whose hold it ends, so that a
// request that is sent twice, or comes late, does not end the next one.
func (d *driver) Break(ctx context.Context, name string) error {
	st, entry, err := d.inspect(ctx, name)
	if err != nil {
		return err
	}
	if !st.Held {
		return distlock.ErrLost
	}
	k := keyOf(d.prefix, name)
	_, _, err = d.run(ctx, breakScript, false, []string{k.entry(), k.token(), k.queue(), k.waiters()},
		entry, st.Token, d.memory, d.publish)
	return err // if that hold was over by then, it has ended as well
}
