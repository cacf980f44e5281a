package redislock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
	"github.com/distlock-go/distlock/redislock/internal/names"
)

// looks is how many names a List asks for side by side. They share requests, so that it does not wait for a round trip
// for each.
const looks = 64

// List implements driver.Inspector. It asks for each name by itself, because SCAN returns keys
// that may have expired since. A key of another type is no lock.
func (d *store) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	// Detached, because the client does not heed a cancelled context.
	found, err := driver.Detach(ctx, func() ([]string, error) { return d.scan(ctx, names.Pattern(d.prefix, prefix)) })
	if err != nil {
		return nil, err
	}
	slices.Sort(found)
	var list []distlock.Status
	for part := range slices.Chunk(slices.Compact(found), looks) { // SCAN may return a key twice
		seen, errs := make([]distlock.Status, len(part)), make([]error, len(part))
		var all sync.WaitGroup
		for i, name := range part {
			all.Go(func() { seen[i], errs[i] = d.Inspect(ctx, name) })
		}
		all.Wait()
		for i, err := range errs {
			switch {
			case err != nil && strings.Contains(err.Error(), "WRONGTYPE"): // in Redis 6.2, not at the beginning
			case err != nil:
				return nil, err
			case seen[i].Held:
				list = append(list, seen[i])
			}
		}
	}
	return list, nil
}

// How all names of a cluster are found. go-redis has the masters from one server, which may not know all of them, or
// from its memory. A key that moves to another server may be there after that was read, and gone from its own before.
// So each master shows its view of the cluster before and after its keys are read:
//
//	all views are one, and all slots are with the masters asked   nothing has moved: these are all keys
//	the same, but slots are open, twice in a row                  a key that has moved meanwhile was found in the first
//	                                                              reading or in the second: it can move only once
//	else                                                          read again, from the masters that are known then

// maxReadings bounds how often the keys of a cluster are read until the views are one.
const maxReadings = 6

// scan returns the names of the entries that match.
func (d *store) scan(ctx context.Context, match string) (all []string, err error) {
	var before map[string]string // the server of each slot, if the reading before was of one view
	pause := driver.Retry{First: 50 * time.Millisecond, Most: time.Second}
	for readings := 1; ; readings++ {
		var mu sync.Mutex
		var views []view
		err := d.eachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			found, seen, err := d.read(ctx, master, match)
			mu.Lock()
			defer mu.Unlock()
			all, views = append(all, found...), append(views, seen...)
			return err
		})
		if err != nil || d.cluster == nil || d.cluster.Options().ClusterSlots != nil { // these are not a cluster's, but the user's
			return all, endpoint.Fault(ctx, err)
		}
		open, err := agree(views)
		if err == nil && (!open || maps.Equal(before, views[0].slots)) {
			return all, nil
		}
		before = nil
		if err == nil {
			before, err = views[0].slots, errors.New("its slots are being moved")
		}
		if readings >= maxReadings || pause.Pause(ctx) != nil {
			return nil, &driver.Fault{Fate: driver.NotNow, Err: fmt.Errorf("redislock: the cluster cannot be listed now: %w", err)}
		}
	}
}

// read returns the names that match at one master, and its views before and after.
func (d *store) read(ctx context.Context, master *redis.Client, match string) (found []string, seen []view, err error) {
	look := func() error {
		if d.cluster == nil || d.cluster.Options().ClusterSlots != nil {
			return nil
		}
		text, err := master.ClusterNodes(ctx).Result()
		seen = append(seen, viewOf(text))
		return err
	}
	if err := look(); err != nil {
		return nil, nil, err
	}
	it := master.Scan(ctx, 0, match, 1000).Iterator()
	for it.Next(ctx) {
		if name, ok := names.NameOf(d.prefix, it.Val()); ok {
			found = append(found, name)
		}
	}
	err = errors.Join(it.Err(), look()) // look adds to seen
	return found, seen, err
}

// view is what a master says of its cluster. Servers are known by their ids.
type view struct {
	self  string
	slots map[string]string // by server: "0-5460 9999"
	open  []string          // the servers that slots of self are being moved to or from
}

// viewOf reads the answer of CLUSTER NODES, a line for each server:
//
//	<id> <address> <flags> <master> <ping> <pong> <epoch> <link> <slots>...
//
// For the server that was asked, "myself" is a flag, and slots that are being moved follow: [93-<-id], [77->-id].
func viewOf(text string) view {
	v := view{slots: make(map[string]string)}
	for line := range strings.Lines(text) {
		part := strings.Fields(line)
		if len(part) < 8 {
			continue
		}
		if slices.Contains(strings.Split(part[2], ","), "myself") {
			v.self = part[0]
		}
		var slots []string
		for _, s := range part[8:] {
			if strings.HasPrefix(s, "[") {
				v.open = append(v.open, strings.TrimSuffix(s[strings.LastIndex(s, "-")+1:], "]"))
			} else {
				slots = append(slots, s)
			}
		}
		if len(slots) > 0 {
			v.slots[part[0]] = strings.Join(slots, " ")
		}
	}
	return v
}

// agree reports whether slots are open. It returns an error unless the views are one, and the servers that were asked
// have all slots.
func agree(views []view) (open bool, err error) {
	if len(views) == 0 {
		return false, errors.New("the client knows none of its masters")
	}
	asked := make(map[string]bool)
	for _, v := range views {
		asked[v.self] = true
		if !maps.Equal(v.slots, views[0].slots) {
			return false, errors.New("its servers do not agree on who has which slots")
		}
	}
	const all = 16384
	covered := 0
	for id, slots := range views[0].slots {
		if !asked[id] {
			return false, fmt.Errorf("its master %s is not known to the client", id)
		}
		for s := range strings.FieldsSeq(slots) {
			first, last, several := strings.Cut(s, "-")
			if !several {
				last = first
			}
			from, _ := strconv.Atoi(first)
			to, _ := strconv.Atoi(last)
			covered += to - from + 1
		}
	}
	if covered != all {
		return false, fmt.Errorf("%d of %d slots are at a server that the client knows", covered, all)
	}
	for _, v := range views {
		for _, id := range v.open {
			open = true
			if !asked[id] {
				return true, fmt.Errorf("a slot is being moved to or from %s, which is not known to the client", id)
			}
		}
	}
	return open, nil
}

// eachMaster calls f for every server that may hold keys, side by side.
func (d *store) eachMaster(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	if d.cluster != nil {
		return d.cluster.ForEachMaster(ctx, f)
	}
	return f(ctx, d.client.(*redis.Client)) // newStore accepts no other
}
