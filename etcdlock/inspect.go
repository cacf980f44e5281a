package etcdlock

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
)

// Inspect implements distlock.Inspector.
func (d *driver) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	all, err := d.statuses(ctx, d.queue(name))
	if err != nil || len(all) == 0 {
		return distlock.Status{Name: name}, err
	}
	return all[0], nil
}

// List implements distlock.Inspector. Since names are encoded byte by byte, those
// that begin with prefix are those whose keys begin with its encoding.
func (d *driver) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	return d.statuses(ctx, d.prefix+url.PathEscape(prefix))
}

// statuses returns what the keys that begin with prefix say of their names, sorted
// by name. The oldest key of a name is the holder's, the others wait.
func (d *driver) statuses(ctx context.Context, prefix string) ([]distlock.Status, error) {
	resp, err := d.client.Get(ctx, prefix, oldestFirst()...)
	if err != nil {
		return nil, err
	}
	var all []distlock.Status
	index := make(map[string]int)
	remaining := make(map[int64]time.Duration) // by lease: many share one
	for _, kv := range resp.Kvs {
		name, ok := d.name(string(kv.Key))
		if !ok {
			continue // somebody else's
		}
		if i, waits := index[name]; waits {
			all[i].Waiters++
			continue
		}
		left, known := remaining[kv.Lease]
		if !known {
			if left, err = d.remaining(ctx, kv); err != nil {
				return nil, err
			}
			remaining[kv.Lease] = left
		}
		index[name] = len(all)
		all = append(all, distlock.Status{
			Name: name, Held: true, Holder: string(kv.Value), Token: kv.CreateRevision, Remaining: left,
		})
	}
	slices.SortFunc(all, func(a, b distlock.Status) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

func oldestFirst() []clientv3.OpOption {
	return []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)}
}

// remaining returns how long the lease of a key still runs. The server rounds it
// down to whole seconds; -1 stands for a lease that has just ended.
func (d *driver) remaining(ctx context.Context, kv *mvccpb.KeyValue) (time.Duration, error) {
	resp, err := d.client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
	if err != nil {
		return 0, err
	}
	return time.Duration(max(resp.TTL, 0)) * time.Second, nil
}

// Break implements distlock.Breaker. It deletes the holder's key; the next one in
// the queue has a higher create revision already, and is woken as by a release.
func (d *driver) Break(ctx context.Context, name string) error {
	resp, err := d.client.Get(ctx, d.queue(name), append(oldestFirst(), clientv3.WithLimit(1), clientv3.WithKeysOnly())...)
	if err != nil {
		return err
	}
	if len(resp.Kvs) == 0 {
		return distlock.ErrLost
	}
	key, rev := string(resp.Kvs[0].Key), resp.Kvs[0].CreateRevision
	deleted, err := d.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", rev)).
		Then(clientv3.OpDelete(key)).
		Commit()
	if err != nil {
		return err
	}
	if !deleted.Succeeded {
		return distlock.ErrLost // it ended by itself in the meantime; its successor is not meant
	}
	return nil
}
