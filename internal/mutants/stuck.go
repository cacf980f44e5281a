package mutants

import (
	"context"
	"errors"
	"hash/fnv"

	"github.com/distlock-go/distlock"
)

// onFirst reports whether the first of three servers decides of a name.
func onFirst(name string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails, by its documentation
	return h.Sum32()%3 == 0
}

// stored returns a name as it is in the store.
func (h *harness) stored(name string) string {
	if h.encode != nil {
		return h.encode(name)
	}
	return name
}

// BlockName implements conformance.NameBlocker.
func (h *harness) BlockName(_ context.Context, name string) (func() error, error) {
	name = h.stored(name)
	h.world.blocked.Store(name, true)
	unblock := h.world.stuck.Block(func(n string) bool { return n == name })
	return func() error {
		err := unblock()
		h.world.blocked.Delete(name)
		return err
	}, nil
}

// row looks at a name for a sweep, which passes over what is stuck. The caller has exclusive access to the entries.
func (w *world) row(ctx context.Context, name string) (distlock.Status, error) {
	if _, stuck := w.blocked.Load(name); stuck {
		return distlock.Status{}, errors.New("the row is locked")
	}
	return w.mem.Inspect(ctx, name)
}

// BlockServer implements conformance.ServerBlocker.
func (h *harness) BlockServer(context.Context) (func(name string) bool, func() error, error) {
	alone := func(name string) bool { return onFirst(h.stored(name)) }
	return alone, h.world.stuck.Block(onFirst), nil
}
