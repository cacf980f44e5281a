package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
)

// crashBetween: the name and its expiry are set by two commands.
func crashBetween(ctx context.Context, s *stage) error {
	ok, err := s.SetNX(ctx, s.key, "alice", 0).Result()
	if err := expect(ok, "alice gets the lock", err); err != nil {
		return err
	}
	s.say("alice", "SETNX: it is hers. She crashes before EXPIRE")
	time.Sleep(2 * s.lease)
	ok, err = s.SetNX(ctx, s.key, "bob", 0).Result()
	if err := expect(!ok, "the lock stays taken", err); err != nil {
		return err
	}
	ttl, err := s.PTTL(ctx, s.key).Result()
	if err := expect(ttl < 0, "the key has no expiry", err); err != nil {
		return err
	}
	s.say("bob", "SETNX: taken, with no expiry. He waits for ever")

	// A fixed term that nobody gives back is what a crash leaves behind.
	if _, err := s.locker.TryLock(ctx, s.key, distlock.TTL(s.lease), distlock.NoRenewal()); err != nil {
		return err
	}
	s.say("distlock", "alice locks and crashes: name and expiry are one step")
	lock, err := s.locker.Lock(ctx, s.key)
	if err != nil {
		return err
	}
	s.say("distlock", "bob has it after her lease, with the next token %d", lock.Token())
	return lock.Unlock(ctx)
}

// blindDelete: the key is deleted at the end, though it may be of another holder by now.
func blindDelete(ctx context.Context, s *stage) error {
	if err := s.takenOver(ctx); err != nil {
		return err
	}
	n, err := s.Del(ctx, s.key).Result()
	if err := expect(n == 1, "alice deletes what is bob's", err); err != nil {
		return err
	}
	s.say("alice", "is done, DEL: she has freed bob's lock")
	if err := s.thirdGetsIn(ctx); err != nil {
		return err
	}
	return s.ours(ctx)
}

// getThenDelete: a look before the deletion, but the world goes on between the two.
func getThenDelete(ctx context.Context, s *stage) error {
	ok, err := s.SetNX(ctx, s.key, "alice", s.lease).Result()
	if err := expect(ok, "alice gets the lock", err); err != nil {
		return err
	}
	owner, err := s.Get(ctx, s.key).Result()
	if err := expect(owner == "alice", "it is alice's", err); err != nil {
		return err
	}
	s.say("alice", "is done, GET: it is hers. She stops for a moment")
	time.Sleep(s.lease + s.lease/2)
	ok, err = s.SetNX(ctx, s.key, "bob", time.Minute).Result()
	if err := expect(ok, "bob gets the lock after her lease", err); err != nil {
		return err
	}
	s.say("bob", "SETNX: her lease is over, it is his")
	if err := s.Del(ctx, s.key).Err(); err != nil {
		return err
	}
	s.say("alice", "goes on, DEL: she has freed bob's lock")
	if err := s.thirdGetsIn(ctx); err != nil {
		return err
	}
	return s.ours(ctx)
}

// getSet: the value is when the lock ends, by the clock of the process that set it. If it
// is in the past, GETSET takes the lock over. One Go library still has this lock.
func getSet(ctx context.Context, s *stage) error {
	take := func(now time.Time) (bool, error) {
		ok, err := s.SetNX(ctx, s.key, now.Add(time.Minute).UnixMilli(), 0).Result()
		if ok || err != nil {
			return ok, err
		}
		ends, err := s.Get(ctx, s.key).Result()
		if err != nil {
			return false, err
		}
		if n, err := strconv.ParseInt(ends, 10, 64); err != nil || n > now.UnixMilli() {
			return false, err
		}
		before, err := s.Do(ctx, "GETSET", s.key, now.Add(time.Minute).UnixMilli()).Text()
		return before == ends, err
	}
	ok, err := take(time.Now())
	if err := expect(ok, "alice gets the lock", err); err != nil {
		return err
	}
	s.say("alice", "has the lock for a minute, by her clock")
	ok, err = take(time.Now().Add(2 * time.Minute))
	if err := expect(ok, "bob, whose clock is ahead, gets it beside her", err); err != nil {
		return err
	}
	s.say("bob", "his clock is two minutes ahead: her minute is over, GETSET, it is his. Two holders")

	lock, err := s.locker.TryLock(ctx, s.key)
	if err != nil {
		return err
	}
	_, err = s.locker.TryLock(ctx, s.key)
	if err := expect(errors.Is(err, distlock.ErrHeld), "nobody else gets the lock", nil); err != nil {
		return err
	}
	s.say("distlock", "leases are judged by the server's clock alone: bob is refused")
	return lock.Unlock(ctx)
}

// takenOver: alice is too slow, and bob has the lock by now.
func (s *stage) takenOver(ctx context.Context) error {
	ok, err := s.SetNX(ctx, s.key, "alice", s.lease).Result()
	if err := expect(ok, "alice gets the lock", err); err != nil {
		return err
	}
	s.say("alice", "SET NX PX: it is hers for %v. Her work takes longer", s.lease)
	time.Sleep(s.lease + s.lease/2)
	ok, err = s.SetNX(ctx, s.key, "bob", time.Minute).Result()
	if err := expect(ok, "bob gets the lock after her lease", err); err != nil {
		return err
	}
	s.say("bob", "SET NX PX: her lease is over, it is his")
	return nil
}

// thirdGetsIn: the lock is free although bob is still at work.
func (s *stage) thirdGetsIn(ctx context.Context) error {
	ok, err := s.SetNX(ctx, s.key, "carol", time.Minute).Result()
	if err := expect(ok, "carol gets in beside bob", err); err != nil {
		return err
	}
	s.say("carol", "SET NX PX: it is hers, and bob is still at work. Two holders")
	return nil
}

// ours is the story of a slow holder, with a lock that only she can free.
func (s *stage) ours(ctx context.Context) error {
	if err := s.Del(ctx, s.key).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	alice, err := s.locker.TryLock(ctx, s.key, distlock.TTL(s.lease), distlock.NoRenewal())
	if err != nil {
		return err
	}
	bob, err := s.locker.Lock(ctx, s.key)
	if err != nil {
		return err
	}
	err = alice.Unlock(ctx)
	if err := expect(errors.Is(err, distlock.ErrLost), "alice is told that her lock was lost", nil); err != nil {
		return err
	}
	if err := bob.Err(); err != nil {
		return fmt.Errorf("expected that bob keeps his lock: %w", err)
	}
	_, err = s.locker.TryLock(ctx, s.key)
	if err := expect(errors.Is(err, distlock.ErrHeld), "carol is refused", nil); err != nil {
		return err
	}
	s.say("distlock", "alice is told %q, bob keeps his lock (token %d after %d), carol is refused", distlock.ErrLost, bob.Token(), alice.Token())
	return bob.Unlock(ctx)
}
