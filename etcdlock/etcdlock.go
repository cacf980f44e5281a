// Package etcdlock takes locks on etcd.
//
//	locker, err := etcdlock.New(client, nil)                     // on your own client
//	locker, err := etcdlock.Open(ctx, "etcd://host1,host2", nil) // or on one of its own
//
// Every claim on a name is a key of its own under the name's prefix, and the oldest
// of them has the lock: first come, first served over all processes. A free lock is
// taken by one transaction. The keys live by leases, which all renewed locks of one
// TTL share, so that ten thousand locks are renewed by less than a request a second.
//
// The token of a lock is the create revision of its key. Writes to etcd itself are
// fenced inside of etcd: put [Lock.Cmp] into their transactions.
//
// docs/etcd.md says what is stored, what is guaranteed, and what to set.
package etcdlock

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
)

const (
	// DefaultPrefix begins all keys where Options name no other.
	DefaultPrefix = "distlock/"

	maxPrefix = 512 // bytes
)

// Options configure a Locker on etcd. The zero value, and nil, mean the defaults.
type Options struct {
	distlock.Options

	// Prefix begins every key, like "app/locks/"; a slash is added if it does not
	// end with one. Lockers exclude each other if they have the same; others never
	// meet, even if one prefix begins with the other. Empty means DefaultPrefix;
	// up to 512 bytes of valid UTF-8 without "!" are allowed.
	Prefix string
}

// Locker takes locks on one etcd cluster. It is safe for concurrent use.
type Locker struct {
	*distlock.Client
}

// Lock is a lock on etcd. It is safe for concurrent use.
type Lock struct {
	*distlock.Handle
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
// Such a transaction is applied only if the lock is held at that instant, whatever
// its holder believes. The name of its key is absolute: the client must not add a
// prefix to keys that the one of the Locker does not.
func (l *Lock) Cmp() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.key), "=", l.Token())
}

// New returns a Locker on a client of the user, which it never closes. It sends no
// request. It fails with distlock.ErrInvalid if an option is not allowed, or if the
// client has no connection of its own (clientv3.NewCtxClient).
//
// Set DialKeepAliveTime and DialKeepAliveTimeout in the configuration of the client,
// as Open does: without them, a request to a server that has silently gone away
// hangs until its context ends, instead of going to another server.
func New(client *clientv3.Client, o *Options) (*Locker, error) {
	return newLocker(client, o, false)
}

// newLocker returns a Locker whose Close also closes the client if that is owned.
func newLocker(client *clientv3.Client, o *Options, owned bool) (*Locker, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	d, err := newDriver(client, opts.Prefix, owned)
	if err != nil {
		return nil, opened(err)
	}
	c, err := distlock.New(d, &opts.Options)
	if err != nil {
		return nil, err
	}
	return &Locker{c}, nil
}

func opened(err error) error { return fmt.Errorf("distlock: open etcd: %w", err) }

// checkPrefix returns p as keys begin with it. It ends with a slash, and names are
// encoded without one, so no key belongs to two prefixes.
func checkPrefix(p string) (string, error) {
	if len(p) > maxPrefix || !utf8.ValidString(p) || strings.Contains(p, terminator) {
		return "", fmt.Errorf("%w: the prefix is %q, allowed are up to %d bytes of valid UTF-8 without %q",
			distlock.ErrInvalid, p, maxPrefix, terminator)
	}
	return slashed(cmp.Or(p, DefaultPrefix)), nil
}

func slashed(p string) string {
	if p == "" {
		return ""
	}
	return strings.TrimSuffix(p, "/") + "/"
}
