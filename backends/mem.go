package backends

import (
	"context"
	"sync"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/memlock"
)

// memory opens mem://name: within one process, Lockers of the same name, which may be any
// text, share a store, as they would share a server.
type memory struct {
	mu sync.Mutex
	// stores are never removed: tokens must not fall when the last Locker of a
	// name is closed and another one opened.
	stores map[string]*memlock.Store
}

func newMemory() *memory {
	return &memory{stores: make(map[string]*memlock.Store)}
}

func (m *memory) open(ctx context.Context, raw string, o *distlock.Options) (distlock.Locker, error) {
	name, opts, err := parseMemory(raw, o)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, &distlock.Error{Op: "open memory", Err: err}
	}
	return locker(memlock.New(m.store(name), &memlock.Options{Options: opts}))
}

func (m *memory) store(name string) *memlock.Store {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stores[name] == nil {
		m.stores[name] = memlock.NewStore(nil)
	}
	return m.stores[name]
}

func parseMemory(raw string, o *distlock.Options) (name string, opts distlock.Options, err error) {
	u, err := openurl.Parse(raw, "mem")
	if err != nil {
		return "", opts, err
	}
	opts = *o
	u.Common(&opts)
	if err := u.Err(); err != nil {
		return "", opts, err
	}
	return u.Path(), opts, nil
}
