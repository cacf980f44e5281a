package peers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/distlock-go/distlock"
)

// recorder keeps requests that are sent while it listens.
type recorder[T any] struct {
	mu       sync.Mutex
	requests []T
}

func (r *recorder[T]) add(requests ...T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, requests...)
}

// take returns what was recorded, and forgets it.
func (r *recorder[T]) take() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	requests := r.requests
	r.requests = nil
	return requests
}

// lockUnlock returns the two requests that a lock and an unlock of the name sends,
// and the token. It does so twice: the first use of a locker, and of a name, may
// need more.
func (r *recorder[T]) lockUnlock(ctx context.Context, l distlock.Locker, name string) (take, free T, token int64, err error) {
	var requests []T
	for range 2 {
		r.take()
		lock, err := l.Lock(ctx, name)
		if err != nil {
			return take, free, 0, err
		}
		token = lock.Token()
		if err := lock.Unlock(ctx); err != nil {
			return take, free, 0, err
		}
		requests = r.take()
	}
	if len(requests) != 2 {
		return take, free, 0, fmt.Errorf("a lock and unlock is no longer two requests, but %v", requests)
	}
	return requests[0], requests[1], token, nil
}

// errNoOwner is returned where the owner is not found in what was recorded.
var errNoOwner = errors.New("no owner stands in what was recorded")
