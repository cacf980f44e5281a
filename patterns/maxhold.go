package patterns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

// MaxHold returns a Locker whose locks end d after they were granted, however well they
// are renewed. The cap is for holders that live but are stuck: their names would stay taken
// until somebody restarts them. A holder is told a tenth of d before: Done closes, and
// Err matches ErrLost and says why. The name is taken for that last tenth, so what a
// holder ends in it meets no successor; it is free sooner if the holder unlocks. [distlock.Do]
// ends the context of its function in the same way.
//
// Deadline is never later than that moment, and an Extend beyond it is ErrInvalid, as is a
// fixed term (see [distlock.NoRenewal]) of more than d, and so a longer period of [OncePer]. Unlock
// after it frees the name, and returns why the lock had ended. The cap is kept by this
// process: one that is stopped or dies loses its locks at the end of their TTL. A d of
// zero or less is ErrInvalid in every call. Close closes l.
func MaxHold(l distlock.Locker, d time.Duration) distlock.Locker {
	mustHave("maxhold", l)
	return &wrapper{l, func(ctx context.Context, c call) (distlock.Lock, error) { return take(ctx, c, d) }}
}

// take takes a lock and caps it.
func take(ctx context.Context, c call, longest time.Duration) (distlock.Lock, error) {
	o := c.options()
	switch {
	case longest <= 0:
		return nil, c.invalid("MaxHold of %v, allowed is more than 0", longest)
	case o.NoRenewal && o.TTL > longest:
		return nil, c.invalid("the TTL is %v for a lock that is not renewed, and MaxHold ends it after %v", o.TTL, longest)
	}
	lock, err := c.take(ctx, c.name, c.opts...)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if left := lock.Deadline().Sub(now); o.NoRenewal && left > longest { // the TTL is the default of the Locker
		_ = lock.Unlock(ctx)
		return nil, c.invalid("the lock would last for %v without being renewed, and MaxHold ends it after %v", left, longest)
	}
	l := &capped{localLock: newLocalLock(lock), longest: longest, told: now.Add(longest - longest/10), free: now.Add(longest)}
	go l.watch()
	return l, nil
}

// capped is a lock that ends at told for its holder, and at free in the store.
type capped struct {
	localLock
	longest    time.Duration
	told, free time.Time
}

// watch ends the lock for its holder at told, and in the store at free. It ends with the lock itself.
func (c *capped) watch() {
	timer := time.NewTimer(time.Until(c.told))
	defer timer.Stop()
	select {
	case <-c.Lock.Done():
		c.end(c.Lock.Err())
		return
	case <-timer.C:
		c.end(c.overdue())
	}
	timer.Reset(time.Until(c.free))
	select {
	case <-c.Lock.Done():
	case <-timer.C:
		// Its renewal stops with that; if the store does not answer, the TTL does the rest.
		_ = c.Lock.Unlock(context.Background())
	}
}

func (c *capped) overdue() error {
	return opError("lock", c.Name(), fmt.Errorf("%w: held for nine tenths of %v, the longest that MaxHold allows", distlock.ErrLost, c.longest))
}

// Err implements Lock.
func (c *capped) Err() error {
	if err := c.localLock.Err(); err != nil || time.Now().Before(c.told) {
		return err
	}
	return c.overdue()
}

// Deadline implements Lock.
func (c *capped) Deadline() time.Time {
	if d := c.Lock.Deadline(); d.Before(c.told) {
		return d
	}
	return c.told
}

// Extend implements Lock.
func (c *capped) Extend(ctx context.Context, ttl time.Duration) error {
	if err := c.Err(); err != nil {
		return err
	}
	if left := time.Until(c.told); ttl > left {
		return opError("extend", c.Name(), fmt.Errorf("%w: the TTL is %v, and MaxHold ends the lock in %v", distlock.ErrInvalid, ttl, left))
	}
	return c.Lock.Extend(ctx, ttl)
}

// Unlock implements Lock.
func (c *capped) Unlock(ctx context.Context) error {
	c.end(cmp.Or(c.Err(), opError("lock", c.Name(), distlock.ErrUnlocked)))
	err := c.Lock.Unlock(ctx)
	if cause := context.Cause(c.ctx); err == nil && errors.Is(cause, distlock.ErrLost) {
		err = cause
	}
	return err
}
