// Package peers makes a distlock.Locker of each lock library that is measured beside
// ours. Each is used as its documentation says, with the settings that serve it best
// where it has any.
package peers

import (
	"context"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
)

// Target is where and how a peer is to lock.
type Target struct {
	URLs  []string      // of the servers; the first is the only one for all but those that lock on a majority
	TTL   time.Duration // or session timeout, of every lock
	Renew bool          // keep held locks alive, also for libraries that leave that to their users
}

// Peer is one library, or one way to use it, on one store.
type Peer struct {
	Name   string
	Store  servers.Kind
	Module string // for its version; empty for what is written here
	Note   string // what a reader must know to read its figures
	// Shared marks what does not keep two goroutines with one client apart.
	Shared bool
	Nodes  int // servers it needs, if more than one
	Most   int // locks it can hold at once; 0: no limit known

	// Open returns a client with connections of its own. Its options are those of the
	// target; it cannot TryLock or Extend, and has no tokens.
	Open func(ctx context.Context, t Target) (distlock.Locker, error)
}

// All are the peers, by store.
var All = []Peer{bsm, redsync1, redsync5, rueidisLock, getLock, polledTable, advisory, cirello, zkLock, etcdShared, etcdSession}

// On returns the peers of a store.
func On(store servers.Kind) []Peer {
	var on []Peer
	for _, p := range All {
		if p.Store == store {
			on = append(on, p)
		}
	}
	return on
}
