package oracle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
)

// The toy is a lock server of 60 lines with a choice of faults, used in virtual
// time to show that the oracles see what they must and accuse nobody else. It is
// deliberately not memlock: an oracle that was tuned on the reference driver alone
// might share its mistakes.

type toyServer struct {
	mu    sync.Mutex
	flaw  string
	names map[string]*toyEntry
	rng   *rand.Rand
	loss  float64 // probability that a request or its reply is lost
}

type toyEntry struct {
	owner int
	token int64
	ends  time.Time
}

var errToyNet = errors.New("connection reset by toy")

func newToy(seed uint64, flaw string, loss float64) *toyServer {
	return &toyServer{flaw: flaw, loss: loss, names: make(map[string]*toyEntry), rng: rand.New(rand.NewPCG(seed, 1))}
}

func (s *toyServer) random(n time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rng.Int64N(int64(n)))
}

// send carries a request there and its answer back, or loses one of them.
func (s *toyServer) send(apply func() error) error {
	time.Sleep(s.random(2 * time.Millisecond))
	outcome := float64(s.random(time.Second)) / float64(time.Second)
	if outcome < s.loss/2 {
		time.Sleep(10 * time.Millisecond)
		return errToyNet
	}
	err := apply()
	time.Sleep(s.random(2 * time.Millisecond))
	if outcome < s.loss {
		return errToyNet
	}
	return err
}

func (s *toyServer) entry(name string) *toyEntry {
	e := s.names[name]
	if e == nil {
		e = new(toyEntry)
		s.names[name] = e
	}
	ends := e.ends
	if s.flaw == "expiry 15 ms early" {
		ends = ends.Add(-15 * time.Millisecond)
	}
	if e.owner != 0 && !time.Now().Before(ends) {
		e.owner = 0
		if s.flaw == "token reset after expiry" {
			e.token = 0
		}
	}
	return e
}

func (s *toyServer) try(name string, owner int, ttl time.Duration) (token int64, err error) {
	if s.flaw == "racy acquire" {
		s.mu.Lock()
		free := s.entry(name).owner == 0
		s.mu.Unlock()
		if !free {
			return 0, distlock.ErrHeld
		}
		time.Sleep(time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(name)
	if e.owner != 0 && s.flaw != "racy acquire" {
		return 0, distlock.ErrHeld
	}
	e.owner, e.ends = owner, time.Now().Add(ttl)
	e.token++
	return e.token, nil
}

func (s *toyServer) renew(name string, owner int, ttl time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(name)
	if e.owner != owner {
		if s.flaw != "resurrecting renewal" {
			return distlock.ErrLost
		}
		e.owner = owner
	}
	if ends := time.Now().Add(ttl); e.ends.Before(ends) {
		e.ends = ends
	}
	return nil
}

func (s *toyServer) release(name string, owner int) error {
	s.mu.Lock()
	mine := s.entry(name).owner == owner
	s.mu.Unlock()
	if s.flaw == "check, then delete" {
		time.Sleep(time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !mine && s.flaw != "unlock without owner check" {
		return distlock.ErrLost
	}
	if e := s.entry(name); e.owner == owner || s.flaw == "check, then delete" || s.flaw == "unlock without owner check" {
		e.owner = 0
	}
	return nil
}

// toyLocker and toyLock are as much of a client as the Recorder needs.
type toyLocker struct{ s *toyServer }

type toyLock struct {
	s     *toyServer
	name  string
	owner int
	token int64

	mu    sync.Mutex
	ends  time.Time
	ended error
}

var toyOwners = struct {
	sync.Mutex
	n int
}{}

func (l toyLocker) TryLock(_ context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	var o distlock.CallOptions
	for _, opt := range opts {
		opt(&o)
	}
	toyOwners.Lock()
	toyOwners.n++
	k := &toyLock{s: l.s, name: name, owner: toyOwners.n}
	toyOwners.Unlock()
	sent := time.Now()
	err := l.s.send(func() (err error) {
		k.token, err = l.s.try(name, k.owner, o.TTL)
		return err
	})
	if err != nil {
		if !errors.Is(err, distlock.ErrHeld) {
			go func() { time.Sleep(l.s.random(20 * time.Millisecond)); l.s.release(name, k.owner) }()
		}
		return nil, fmt.Errorf("toy: %w", err)
	}
	k.ends = sent.Add(o.TTL * 99 / 100)
	return k, nil
}

func (l toyLocker) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	for {
		k, err := l.TryLock(ctx, name, opts...)
		if err == nil || !errors.Is(err, distlock.ErrHeld) {
			return k, err
		}
		time.Sleep(l.s.random(5 * time.Millisecond))
	}
}

func (l toyLocker) Close() error { return nil }

func (k *toyLock) Name() string          { return k.name }
func (k *toyLock) Token() int64          { return k.token }
func (k *toyLock) Done() <-chan struct{} { return nil }

func (k *toyLock) Deadline() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ends
}

func (k *toyLock) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended == nil && !time.Now().Before(k.ends) {
		if k.s.flaw == "resurrecting renewal" {
			return distlock.ErrLost // until Extend makes it come true again
		}
		k.ended = distlock.ErrLost
	}
	return k.ended
}

func (k *toyLock) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended == nil {
		k.ended = err
	}
}

func (k *toyLock) Extend(_ context.Context, ttl time.Duration) error {
	if err := k.Err(); err != nil && k.s.flaw != "resurrecting renewal" {
		return err
	}
	sent := time.Now()
	err := k.s.send(func() error { return k.s.renew(k.name, k.owner, ttl) })
	if err != nil {
		if errors.Is(err, distlock.ErrLost) {
			k.end(err)
		}
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if ends := sent.Add(ttl * 99 / 100); k.ended == nil && k.ends.Before(ends) {
		k.ends = ends
	}
	return nil
}

func (k *toyLock) Unlock(context.Context) error {
	k.end(distlock.ErrUnlocked)
	return k.s.send(func() error { return k.s.release(k.name, k.owner) })
}

// toyRun lets five clients loose on one toy in virtual time and returns what they
// did. With aimed, a third of the holds end within milliseconds of their TTL, and
// half of those try to renew there.
func toyRun(t *testing.T, seed uint64, flaw string, loss float64, aimed bool) *History {
	var h *History
	synctest.Test(t, func(t *testing.T) {
		s := newToy(seed, flaw, loss)
		j := NewRecorder(History{Backend: "toy", Seed: seed, Granularity: time.Nanosecond})
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() { toyClient(j, s, fmt.Sprint("c", i), rand.New(rand.NewPCG(seed, uint64(i+2))), aimed) })
		}
		wg.Wait()
		time.Sleep(time.Second) // the undo of unknown outcomes
		h = j.History()
	})
	return h
}

func toyClient(j *Recorder, s *toyServer, who string, rng *rand.Rand, aimed bool) {
	const ttl = 60 * time.Millisecond
	ctx := context.Background()
	for range 60 {
		op := OpTry
		if rng.IntN(4) == 0 {
			op = OpLock
		}
		h, err := j.Acquire(ctx, op, who, toyLocker{s}, fmt.Sprint("n", rng.IntN(2)), distlock.TTL(ttl), distlock.NoRenewal())
		if err != nil {
			time.Sleep(time.Duration(rng.Int64N(int64(8 * time.Millisecond))))
			continue
		}
		switch {
		case aimed && rng.IntN(3) == 0:
			end := h.Deadline().Add(time.Millisecond)
			time.Sleep(time.Until(end.Add(time.Duration(rng.Int64N(int64(8*time.Millisecond))) - 6*time.Millisecond)))
			if rng.IntN(2) == 0 {
				h.Extend(ctx, ttl)
				time.Sleep(time.Duration(rng.Int64N(int64(10 * time.Millisecond))))
			}
		case rng.IntN(8) == 0: // forgotten: it expires, and the late unlock must be harmless
			time.Sleep(ttl + time.Duration(rng.Int64N(int64(40*time.Millisecond))))
		default:
			time.Sleep(time.Duration(rng.Int64N(int64(10 * time.Millisecond))))
			if rng.IntN(4) == 0 {
				h.Extend(ctx, ttl)
			}
		}
		h.Unlock(ctx)
	}
}
