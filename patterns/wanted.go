package patterns

import (
	"context"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

// Wanted returns a channel that is closed when another waits for the name of lock: a
// sign for holders that could let go early, such as a long job between two of its steps.
// It changes nothing about the lock, and nobody has to listen. l is the Locker that has made
// the lock, or another on the same store that has the same names.
//
// It asks l at once, and then every so often: a request each time, for this lock alone. So
// the holder is told of a waiter within that time. The looks end with the lock, or with
// ctx. It is a hint: a waiter may have given up meanwhile. The channel stays open where the
// store does not know of waiters: on MySQL without named locks, on Postgres behind a pooler,
// and with Redlock. Where there were several waiters on MySQL, and one of them is the holder
// now, it may be told of the others up to ten seconds later.
//
// It fails with ErrUnsupported for locks of [Semaphore] and [ReadWrite], which are several
// names in the store, and if l cannot be looked at; with ErrInvalid if every is zero or
// less; with the error of the lock if that has ended; or with that of the first look. Later
// looks that fail are made up for by the next.
func Wanted(ctx context.Context, l distlock.Locker, lock distlock.Lock, every time.Duration) (<-chan struct{}, error) {
	mustHave("wanted", l)
	if every <= 0 {
		return nil, opError("wanted", lock.Name(), fmt.Errorf("%w: a look every %v, allowed is more than 0", distlock.ErrInvalid, every))
	}
	_, permit := distlock.As[*Permit](lock)
	if _, shared := distlock.As[*ordered](lock); permit || shared {
		return nil, opError("wanted", lock.Name(), fmt.Errorf("%w: a permit, or a read or write lock", distlock.ErrUnsupported))
	}
	wanted := make(chan struct{})
	told, err := tellIfWanted(ctx, l, lock, wanted, every)
	if err != nil {
		return nil, err
	}
	go func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for !told {
			select {
			case <-ticker.C:
				told, _ = tellIfWanted(ctx, l, lock, wanted, every)
			case <-lock.Done():
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return wanted, nil
}

// leastLook is what a look has at least, however often there is one.
const leastLook = time.Second

// tellIfWanted looks once, and closes wanted if another waits. The look takes no longer
// than until the next one, nor than the lock lasts, so that nothing hangs on a store that does not answer.
func tellIfWanted(ctx context.Context, l distlock.Locker, lock distlock.Lock, wanted chan<- struct{}, every time.Duration) (told bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, min(max(every, leastLook), time.Until(lock.Deadline())))
	defer cancel()
	st, err := distlock.Inspect(ctx, l, lock.Name())
	if ended := lock.Err(); err != nil && ended != nil {
		err = ended
	}
	if err == nil && st.Wanted {
		close(wanted)
	}
	return err == nil && st.Wanted, err
}
