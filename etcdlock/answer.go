package etcdlock

import (
	"errors"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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

// is reports whether the first key has a create revision.
func (f found) is(rev int64) bool {
	kv := f.first()
	return kv != nil && kv.CreateRevision == rev
}

// readOf returns what the answer to a read says.
func readOf(resp *clientv3.GetResponse) (found, error) {
	revision := resp.Header.GetRevision()
	if revision <= 0 {
		return found{}, errGarbled
	}
	return found{revision, resp.Kvs}, nil
}

// txn is a transaction: a server carries out then if all conditions are true, else otherwise.
type txn struct {
	conditions      []clientv3.Cmp
	then, otherwise []clientv3.Op
}

func (t txn) op() clientv3.Op { return clientv3.OpTxn(t.conditions, t.then, t.otherwise) }

// outcome is what has become of a transaction.
type outcome struct {
	succeeded bool    // the conditions were true
	read      []found // by each operation that was carried out
	revision  int64
}

// outcome returns what an answer says, as of a revision of the store.
func (t txn) outcome(resp *pb.TxnResponse, revision int64) (outcome, error) {
	ops := t.otherwise
	if resp.GetSucceeded() {
		ops = t.then
	}
	if resp == nil || revision <= 0 || len(resp.GetResponses()) != len(ops) {
		return outcome{}, errGarbled
	}
	o := outcome{succeeded: resp.Succeeded, revision: revision}
	for i, op := range ops {
		got := resp.Responses[i].GetResponseRange()
		if op.IsGet() && got == nil {
			return outcome{}, errGarbled
		}
		o.read = append(o.read, found{revision, got.GetKvs()})
	}
	return o, nil
}

// lifetime returns how long a lease lasts, of what a server says in seconds.
func lifetime(seconds int64) time.Duration {
	return time.Duration(min(seconds, math.MaxInt64/int64(2*time.Second))) * time.Second
}
