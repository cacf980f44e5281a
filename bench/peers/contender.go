// Package peers puts the lock libraries that are measured, ours among them, behind
// one small interface. Each is used as its documentation says, with the settings
// that serve it best where it has any, and with nothing in between.
package peers

import (
	"context"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
)

// Role says what a contender is there for.
type Role string

// The roles.
const (
	Ours Role = "ours"
	Peer Role = "peer"
	Bare Role = "bare" // requests to the store alone: no lock, but the limit of any, or of ours
)

// Target is where and how a contender is to lock.
type Target struct {
	URLs  []string      // of the servers; the first is the only one for all but those that lock on a majority
	TTL   time.Duration // or session time-out, of every lock
	Renew bool          // keep held locks alive, also for libraries that leave that to their users
}

// Client stands for one process: it has connections of its own. It is safe for
// concurrent use.
type Client interface {
	// Lock waits until it holds the name. Not every library lets ctx end it.
	Lock(ctx context.Context, name string) (Held, error)
	// Close ends the connections. Locks that are still held are left to the library.
	Close() error
}

// Held is one lock that is held.
type Held interface {
	Unlock(ctx context.Context) error
	// Lost reports whether the library knows that the lock has ended.
	Lost() bool
}

// Contender is one library, or one way to use it, on one store.
type Contender struct {
	Name    string
	Backend servers.Kind
	Role    Role
	Module  string // whose version is shown; empty for what is written here
	Note    string // what a reader must know to read its figures; one sentence

	// Shared marks what does not keep two goroutines with one client apart. It
	// counts as a peer only where each client has one goroutine a name.
	Shared bool
	Polls  bool // a waiter asks again and again
	Nodes  int  // servers it needs, if more than one
	Most   int  // locks it can hold at once on these servers; 0: no limit known

	Open func(ctx context.Context, t Target) (Client, error)
}

// All are the contenders, by backend, ours first and the bare commands last.
var All = []Contender{
	ours(servers.Redis), bsm, redsync1, redsync5, rueidisLock, bareScripts, bareRedis,
	ours(servers.MySQL), getLock, polledTable, bareStatements, bareMySQL,
	ours(servers.ZooKeeper), zkLock, bareZooKeeper,
	ours(servers.Etcd), etcdSession, etcdShared, bareTransactions, bareEtcd,
}

// On returns the contenders of a backend.
func On(backend servers.Kind) []Contender {
	var on []Contender
	for _, c := range All {
		if c.Backend == backend {
			on = append(on, c)
		}
	}
	return on
}
