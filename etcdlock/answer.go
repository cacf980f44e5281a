package etcdlock

import (
	"errors"
	"math"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// errGarbled is an answer that lacks a part. So it was the answer to another request:
// something between us and the servers has dropped bytes.
var errGarbled = errors.New("etcd gave an answer that does not fit the request")

// found is what a read has found, as of a revision of the store.
type found struct {
	revision int64
	kvs      []*mvccpb.KeyValue
}

// first returns the first key; nil if there is none.
func (f found) first() *mvccpb.KeyValue {
	if len(f.kvs) == 0 {
		return nil
	}
	return f.kvs[0]
}

// readOf returns what the answer to a read says.
func readOf(resp *clientv3.GetResponse) (found, error) {
	revision := resp.Header.GetRevision()
	if revision <= 0 {
		return found{}, errGarbled
	}
	return found{revision, resp.Kvs}, nil
}

// reads returns what the answer to a transaction says: the revision, and for each of the
// operations that it was to carry out, what a read has found.
func reads(resp *clientv3.TxnResponse, then, otherwise []clientv3.Op) (all []found, revision int64, err error) {
	ops := otherwise
	if resp.Succeeded {
		ops = then
	}
	revision = resp.Header.GetRevision()
	if revision <= 0 || len(resp.Responses) != len(ops) {
		return nil, 0, errGarbled
	}
	for i, op := range ops {
		got := resp.Responses[i].GetResponseRange()
		if op.IsGet() && got == nil {
			return nil, 0, errGarbled
		}
		all = append(all, found{revision, got.GetKvs()})
	}
	return all, revision, nil
}

// lifetime returns how long a lease lasts, of what a server says in seconds.
func lifetime(seconds int64) time.Duration {
	return time.Duration(min(seconds, math.MaxInt64/int64(2*time.Second))) * time.Second
}
