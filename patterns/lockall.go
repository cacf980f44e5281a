package patterns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

// LockAll waits until it holds all names, or none: if one cannot be had, those
// taken before are unlocked. They are taken in sorted order, so that two calls
// never deadlock. A name given twice, or none at all, is ErrInvalid;
// other errors are those of Lock, and ErrLost if a name taken early was lost while
// the others were waited for.
//
// The names are separate locks: this is not one lock on several stores, and if one
// of them is lost the others are still held until Unlock.
func LockAll(ctx context.Context, l distlock.Locker, names []string, opts ...distlock.Option) (*LockSet, error) {
	mustHave("lockall", l)
	sorted := slices.Sorted(slices.Values(names))
	if len(sorted) == 0 || len(slices.Compact(slices.Clone(sorted))) != len(sorted) {
		return nil, opError("lockall", "", fmt.Errorf("%w: the names are %q, allowed are one or more, each once", distlock.ErrInvalid, names))
	}
	s := &LockSet{locks: make(map[string]distlock.Lock, len(sorted)), done: make(chan struct{})}
	complete := false
	defer func() {
		if !complete { // also after a panic in a function of the caller's
			_ = s.Unlock(ctx) // in the background if ctx has ended
		}
	}()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	for _, name := range sorted {
		lock, err := l.Lock(waiting, name, opts...)
		if err == nil {
			s.locks[name] = lock
			go func() { s.watch(lock); stop() }()
		}
		if ended := s.Err(); err == nil || errors.Is(ended, distlock.ErrLost) { // a loss ends the waiting, and says why
			err = cmp.Or(ended, err)
		}
		if err != nil {
			return nil, err
		}
	}
	complete = true
	return s, nil
}

// LockSet is several locks taken together. It is safe for concurrent use.
type LockSet struct {
	locks map[string]distlock.Lock
	once  sync.Once
	done  chan struct{}
}

// watch ends with the lock, at Unlock at the latest.
func (s *LockSet) watch(lock distlock.Lock) {
	<-lock.Done()
	s.once.Do(func() { close(s.done) })
}

// Lock returns the lock on one of the names, or nil for any other name.
func (s *LockSet) Lock(name string) distlock.Lock { return s.locks[name] }

// Deadline returns the earliest deadline of the locks.
func (s *LockSet) Deadline() time.Time {
	var first time.Time
	for _, lock := range s.locks {
		if d := lock.Deadline(); first.IsZero() || d.Before(first) {
			first = d
		}
	}
	return first
}

// Done returns a channel, closed when the first of the locks has ended.
func (s *LockSet) Done() <-chan struct{} { return s.done }

// Err returns nil while all the locks are held, and then why one of them is not:
// a loss, if there is one, or ErrUnlocked.
func (s *LockSet) Err() error {
	var ended error
	for _, lock := range s.locks {
		err := lock.Err()
		if errors.Is(err, distlock.ErrLost) {
			return err
		}
		if err != nil {
			ended = err
		}
	}
	return ended
}

// Unlock unlocks all. Its error joins those of the single locks.
func (s *LockSet) Unlock(ctx context.Context) error {
	mustHaveContext("unlock", ctx)
	return sideBySide(s.locks, func(_ string, lock distlock.Lock) error { return lock.Unlock(ctx) })
}
