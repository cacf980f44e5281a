package conformance

import "context"

// NameBlocker is implemented by a harness that can make one name of the store stuck.
// It has no capability of its own: checks that need it are skipped without it.
type NameBlocker interface {
	// BlockName makes every request that has to do with name hang or fail, until
	// unblock is called: its row is locked, its key is of another type, its node may
	// not be touched. The name has been held before; it may be held now, and waited
	// for. The store must be in order for all other names.
	BlockName(ctx context.Context, name string) (unblock func() error, err error)
}

// ServerBlocker is implemented by a harness on a store of several servers that can
// make one of them stuck. Checks that need it run alone, and are skipped without it.
type ServerBlocker interface {
	// BlockServer stops one server, without closing its connections. alone reports
	// whether that server alone decides about a name: such names may be lost, and all
	// others must go on.
	BlockServer(ctx context.Context) (alone func(name string) bool, unblock func() error, err error)
}
