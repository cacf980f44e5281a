package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
)

const (
	listPage  = 1000 // how many keys List reads by one request
	listTries = 3
)

// Inspect implements driver.Inspector.
func (s *store) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	all, err := s.statuses(ctx, s.queue(name))
	if err != nil || len(all) == 0 {
		return distlock.Status{Name: name}, err
	}
	return all[0], nil
}

// List implements driver.Inspector. Since names are encoded byte by byte, those
// that begin with prefix have the keys that begin with its encoding.
func (s *store) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	return s.statuses(ctx, s.prefix+url.PathEscape(prefix))
}

// statuses returns what the keys that begin with prefix say of their names, sorted
// by name. The oldest key of a name is the holder's, the others wait.
func (s *store) statuses(ctx context.Context, prefix string) ([]distlock.Status, error) {
	kvs, err := s.all(ctx, prefix)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	var all []distlock.Status
	index := make(map[string]int)
	remaining := make(map[int64]time.Duration) // by lease: many share one
	for _, kv := range kvs {
		name, ok := s.name(string(kv.Key))
		if !ok {
			continue // a foreign key
		}
		if i, waits := index[name]; waits {
			all[i].Waiters++
			continue
		}
		left, known := remaining[kv.Lease]
		if !known {
			if left, err = s.remaining(ctx, kv); err != nil {
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

// all reads the keys that begin with prefix, as of one revision of the store. If that is compacted meanwhile, it begins
// again, listTries times in all.
func (s *store) all(ctx context.Context, prefix string) (kvs []*mvccpb.KeyValue, err error) {
	for range listTries {
		if kvs, err = s.pages(ctx, prefix); !errors.Is(err, rpctypes.ErrCompacted) {
			break
		}
	}
	return kvs, err
}

// pages reads them by pages: one answer with many keys may not come in the time of a request, and each copy of that
// would be as much.
func (s *store) pages(ctx context.Context, prefix string) (kvs []*mvccpb.KeyValue, err error) {
	page := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(listPage)}
	for from := prefix; ; {
		got, err := s.get(ctx, from, page...)
		if err != nil {
			return nil, err
		}
		if kvs = append(kvs, got.kvs...); len(got.kvs) < listPage {
			return kvs, nil
		}
		if from == prefix {
			page = append(page, clientv3.WithRev(got.revision))
		}
		from = string(kvs[len(kvs)-1].Key) + "\x00"
	}
}

// remaining returns how long the lease of a key still runs. The server rounds it
// down to whole seconds.
func (s *store) remaining(ctx context.Context, kv *mvccpb.KeyValue) (time.Duration, error) {
	lease := send(ctx, s, s.steady(ctx), func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return s.lessor.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
	})
	if lease.err != nil {
		return 0, lease.err
	}
	return lifetime(max(lease.got.TTL, 0)), nil // -1 if it has just ended
}

// Break implements driver.Breaker. It deletes the holder's key. The next claim in the
// queue already has a higher create revision, and wakes up as by a release. The
// deletion has a condition: the create revision must be the token. So a new holder is
// safe if it comes between the read and the deletion.
func (s *store) Break(ctx context.Context, name string, token int64) error {
	resp, err := s.get(ctx, s.queue(name), oldest...)
	if err != nil {
		return err
	}
	holder := resp.first()
	if holder == nil || holder.CreateRevision != token {
		return distlock.ErrLost
	}
	key := string(holder.Key)
	// One copy: a second one could not tell the end of the hold from its own work.
	deleted := s.txn(ctx, once, txn{
		conditions: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", token)},
		then:       []clientv3.Op{clientv3.OpDelete(key)},
	})
	if deleted.err == nil && !deleted.got.succeeded {
		return distlock.ErrLost // it ended by itself in the meantime; its successor is not meant
	}
	return deleted.err
}
