package patterns

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

// Shard returns a Locker that spreads names over several independent stores: for more
// locks than one server carries, or so that the failure of one store stops a part of the
// names only. It is no redundancy: each name lives on one shard, and cannot be locked
// while that is down. Close closes all shards.
//
// Each shard has a key that stays with it, such as "redis-1", whatever its address is. A
// name belongs to the shard with the highest hash of key and name (rendezvous hashing:
// Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998). So n
// shards have about an n-th of the names each, and a shard that is added takes its part
// from all others and moves nothing else.
//
// All processes must have the same keys, or two of them may hold one name. To add or
// remove a shard, stop all of them first. What they held until then is unlocked by
// Close, or ends with its TTL: wait for that before the first one starts with the new
// keys. Tokens of different stores are not comparable, so those of the names that move
// may fall; see [distlock.Options].TokenBase.
//
// It fails with ErrInvalid if there is no shard.
func Shard(shards map[string]distlock.Locker) (distlock.Locker, error) {
	if len(shards) == 0 {
		return nil, opError("shard", "", fmt.Errorf("%w: no shards, allowed is at least one", distlock.ErrInvalid))
	}
	for _, l := range shards {
		mustHave("shard", l)
	}
	return &sharded{maps.Clone(shards)}, nil
}

type sharded struct{ shards map[string]distlock.Locker }

var _ distlock.Operator = (*sharded)(nil)

// of returns the shard of a name. The hash is a cryptographic one because names are often
// alike but for their last digits, and simpler hashes are uneven then.
func (s *sharded) of(name string) distlock.Locker {
	var best distlock.Locker
	var highest [sha256.Size]byte
	for key, shard := range s.shards {
		// The length keeps key and name apart: "a" with "bc" is not "ab" with "c".
		h := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(key), key, name))
		if best == nil || bytes.Compare(h[:], highest[:]) > 0 {
			best, highest = shard, h
		}
	}
	return best
}

// Lock implements Locker.
func (s *sharded) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return s.of(name).Lock(ctx, name, opts...)
}

// TryLock implements Locker.
func (s *sharded) TryLock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return s.of(name).TryLock(ctx, name, opts...)
}

// Close implements Locker. The shards are closed side by side, so one that does not
// answer keeps no other from giving its names back.
func (s *sharded) Close() error {
	return s.each(func(l distlock.Locker) error { return l.Close() })
}

// each calls f for all shards, side by side, and joins the errors, which name theirs.
func (s *sharded) each(f func(distlock.Locker) error) error {
	return sideBySide(s.shards, func(key string, l distlock.Locker) error {
		if err := f(l); err != nil {
			return fmt.Errorf("shard %s: %w", key, err)
		}
		return nil
	})
}

// Inspect implements Operator.
func (s *sharded) Inspect(ctx context.Context, name string) (distlock.Status, error) {
	return distlock.Inspect(ctx, s.of(name), name)
}

// List implements Operator. It fails if one of the shards does, with what the others
// have answered.
func (s *sharded) List(ctx context.Context, prefix string) ([]distlock.Status, error) {
	var mu sync.Mutex
	var all []distlock.Status
	err := s.each(func(l distlock.Locker) error {
		sts, err := distlock.List(ctx, l, prefix)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, sts...)
		return err
	})
	slices.SortFunc(all, func(a, b distlock.Status) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// Break implements Operator.
func (s *sharded) Break(ctx context.Context, name string, token int64) error {
	return distlock.Break(ctx, s.of(name), name, token)
}

// Sweep implements Operator. It skips the shards that need no sweeping.
func (s *sharded) Sweep(ctx context.Context, idle time.Duration) (int, error) {
	var mu sync.Mutex
	removed := 0
	err := s.each(func(l distlock.Locker) error {
		n, err := distlock.Sweep(ctx, l, idle)
		if errors.Is(err, distlock.ErrUnsupported) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		removed += n
		return err
	})
	return removed, err
}
