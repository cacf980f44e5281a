package conformance

import (
	"context"

	"github.com/distlock-go/distlock"
)

// Recorder records what clients do to locks outside of the suite, as a History for
// Judge. It is safe for concurrent use.
type Recorder struct{ journal *journal }

// NewRecorder returns a Recorder whose History has nothing yet.
func NewRecorder(backend string) *Recorder {
	return &Recorder{newJournal(History{Backend: backend})}
}

// Lock calls l.Lock as client and records it. What is done with the lock that it
// returns is recorded, too; its methods must not be called concurrently with each
// other. The options must include a TTL.
func (r *Recorder) Lock(ctx context.Context, client string, l distlock.Locker, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return r.acquire(ctx, OpLock, client, l, name, opts)
}

// TryLock is Lock for l.TryLock.
func (r *Recorder) TryLock(ctx context.Context, client string, l distlock.Locker, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return r.acquire(ctx, OpTry, client, l, name, opts)
}

func (r *Recorder) acquire(ctx context.Context, op Op, client string, l distlock.Locker, name string, opts []distlock.Option) (distlock.Lock, error) {
	h, err := r.journal.acquire(ctx, op, client, l, name, opts...)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// History returns a copy of what has been recorded so far.
func (r *Recorder) History() *History { return r.journal.history() }
