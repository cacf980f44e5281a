// Package etcdlock takes locks on etcd.
//
//	locker, err := etcdlock.New(client, nil)                     // on your own client
//	locker, err := etcdlock.Open(ctx, "etcd://host1,host2", nil) // or on one of its own
//
// Every claim on a name is a key of its own under the name's prefix. The oldest key has
// the lock: first come, first served over all processes. One transaction takes a free
// lock. The keys live by leases, and all renewed locks of one TTL share them. So one
// keep-alive in ten seconds, and a read for each 64 of them, renew ten thousand locks.
//
// The token of a lock is the create revision of its key. Writes to etcd itself are
// fenced inside of etcd: put [Lock.Cmp] into their transactions.
//
// What is stored, what is guaranteed, and what to set:
// https://github.com/distlock-go/distlock/blob/main/docs/etcd.md
package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

const (
	// DefaultPrefix begins all keys where Options name no other.
	DefaultPrefix = "distlock/"

	// expiryLag is how long the key of a dead holder may outlast its TTL. It has four
	// parts: the surplus of a shared lease (2 s), rounding up to whole seconds and to
	// the server's minimum (1 s), half a second until the server looks for expired
	// leases, and as much for revoking them.
	expiryLag = 4 * time.Second

	// closeLimit bounds the revocations of Close.
	closeLimit = 5 * time.Second

	// streamsLimit bounds the end of the streams in Close, which sends nothing.
	streamsLimit = 2 * time.Second
)

// Options configure a Locker on etcd. The zero value, and nil, mean the defaults.
type Options struct {
	distlock.Options

	// Prefix begins every key, like "app/locks/". A slash is added if it does not end
	// with one. Lockers exclude each other if they have the same Prefix. With different
	// ones they have nothing to do with each other, even if one prefix begins with the
	// other. Empty means DefaultPrefix. Allowed are up to 512 bytes of valid UTF-8
	// without "!".
	Prefix string
}

// Locker takes locks on one etcd cluster. It is safe for concurrent use.
type Locker struct {
	*driver.Client
}

// Lock is a lock on etcd. It is safe for concurrent use.
type Lock struct {
	*driver.Handle
	key string
}

var (
	_ distlock.Locker = (*Locker)(nil)
	_ distlock.Lock   = (*Lock)(nil)
)

// Key returns the key that exists for as long as the lock is held.
func (l *Lock) Key() string { return l.key }

// Cmp returns the condition "this lock is held", for transactions of the caller's
// own on the same cluster:
//
//	client.Txn(ctx).If(lock.Cmp()).Then(clientv3.OpPut("account/42", "900")).Commit()
//
// Such a transaction is applied only if the lock is held at that instant, whatever its
// holder believes. The name of its key is absolute: the client must not add a prefix to
// keys if the client of the Locker does not.
func (l *Lock) Cmp() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.key), "=", l.StoreToken())
}

// New returns a Locker on a client of the user. Close leaves that client open. New
// sends no request. It fails with distlock.ErrInvalid if an option is not allowed. It
// fails so, too, if the client has no connection of its own (clientv3.NewCtxClient).
//
// Set DialKeepAliveTime and DialKeepAliveTimeout in the configuration of the client, as
// Open does. Without them, a request to a server hangs until its context ends if the
// server has silently gone away. With them, the request goes to another server.
func New(client *clientv3.Client, o *Options) (*Locker, error) {
	return newLocker(client, o, false)
}

// newLocker returns a Locker. Its Close also closes an owned client.
func newLocker(client *clientv3.Client, o *Options, owned bool) (*Locker, error) {
	opts := *cmp.Or(o, new(Options))
	d, err := newDriver(client, opts.Prefix, owned)
	if err != nil {
		return nil, opened(err)
	}
	c, err := driver.New(d, &opts.Options)
	if err != nil {
		return nil, err
	}
	return &Locker{c}, nil
}

// opened adds the operation to an error of New or Open.
func opened(err error) error { return &distlock.Error{Op: "open etcd", Err: err} }

// store makes claims on one cluster. It is safe for concurrent use.
type store struct {
	client    *clientv3.Client
	granter   pb.LeaseClient // clientv3 does not let the caller choose the ID of a lease
	kv        clientv3.KV
	watcher   clientv3.Watcher
	lessor    clientv3.Lease
	prefix    string
	owned     bool // the client is closed with the store
	keys      *keys
	watches   *idleWatches
	stream    atomic.Int64 // of watches, counted from 0
	claims    *batcher
	releases  *batcher
	beginning chan struct{} // has an element while a watch begins

	// life ends with Close. It bounds requests with several callers, which run in the
	// background: any of the callers may leave before the answer.
	life       context.Context
	end        context.CancelFunc
	background sync.WaitGroup

	change time.Duration // after it, another lease takes the place of a shared one
	copies int           // of a request: maxCopies, but in tests that count

	mu     sync.Mutex
	leases []*lease  // the shared ones, and others that Close revokes, until they are known to be dead
	dialed time.Time // when the connection was last told to try again
}

var (
	_ driver.Driver      = (*store)(nil)
	_ driver.LockWrapper = (*store)(nil)
	_ driver.Inspector   = (*store)(nil)
	_ driver.Breaker     = (*store)(nil)
)

func newDriver(client *clientv3.Client, prefix string, owned bool) (*store, error) {
	prefix, err := checkPrefix(prefix)
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, fmt.Errorf("%w: the *clientv3.Client is nil", distlock.ErrInvalid)
	}
	if client.ActiveConnection() == nil {
		return nil, fmt.Errorf("%w: the client has no connection, allowed is one made by clientv3.New", distlock.ErrInvalid)
	}
	life, end := context.WithCancel(context.Background())
	s := &store{
		client:    client,
		granter:   pb.NewLeaseClient(client.ActiveConnection()),
		kv:        kvOf(client, owned),
		watcher:   client.Watcher,
		lessor:    client.Lease,
		prefix:    prefix,
		owned:     owned,
		keys:      newKeys(),
		watches:   &idleWatches{period: idlePeriod, limit: watchLimit, byKey: make(map[string]idleWatch)},
		beginning: make(chan struct{}, 1),
		change:    changePeriod,
		copies:    maxCopies,
		life:      life,
		end:       end,
	}
	s.claims, s.releases = newBatcher(s, false), newBatcher(s, true)
	return s, nil
}

// Capabilities implements driver.Driver.
func (s *store) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Backend:        "etcd",
		Fair:           true,
		Push:           true,
		Durability:     driver.Quorum,
		MinTTL:         time.Second,
		TTLGranularity: time.Second,
		ExpiryLag:      expiryLag,
	}
}

// Close waits for the background. Then it revokes the shared leases if no claim wants a
// key on them. A lease with the key of a kept lock ends with its TTL, and so does a
// lease if it cannot be revoked in time.
//
// It waits first, because a revocation has no effect before the grant. Revoked too
// early, a lease with its grant under way would stay until its TTL ends.
func (s *store) Close() error {
	ctx, cancel := context.WithTimeout(s.life, closeLimit)
	defer cancel()
	s.watches.close()
	stop := context.AfterFunc(ctx, s.end)
	s.background.Wait()
	stop()
	s.mu.Lock()
	leases := slices.DeleteFunc(s.leases, func(l *lease) bool { return l.disposable() || l.used() })
	s.leases = nil
	s.mu.Unlock()
	var err error
	for _, l := range leases {
		if err = l.revoke(ctx); err != nil {
			break // one stands for all: the servers did not answer
		}
	}
	if err != nil && ctx.Err() != nil {
		err = &driver.NoAnswer{From: "etcd", After: closeLimit}
	}
	s.end()
	if s.owned {
		err = errors.Join(err, s.closeClient())
	}
	return err
}

// closeClient closes the client. The library waits for all streams of watches first. One
// of them may wait for ever: a server refused a watch of it, as when its login had run
// out, and the stream ended before it had noted that (clientv3.watchGRPCStream.run counts
// no refused watch among those that are closing). Then the connection is closed here.
func (s *store) closeClient() error {
	conn, closed := s.client.ActiveConnection(), make(chan error, 1)
	go func() { closed <- s.client.Close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(streamsLimit):
		return conn.Close()
	}
}
