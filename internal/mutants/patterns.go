package mutants

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/patterns"
)

// election is what the suite wants of one.
type election = interface {
	Leader() (term int64, ok bool)
	Wait() error
}

type leadFunc = func(ctx context.Context, term int64) error

// patterned is a Locker with a pattern that has a flaw; what is nil stays right.
type patterned struct {
	*driver.Client
	env *env

	elect     func(ctx context.Context, l distlock.Locker, name string, fn leadFunc, opts []distlock.Option) election
	once      func(ctx context.Context, p *patterned, name string, period time.Duration, fn func(context.Context) error) (bool, error)
	maxHold   func(l distlock.Locker, d time.Duration) distlock.Locker
	wanted    func(ctx context.Context, p *patterned, lock distlock.Lock, every time.Duration) (<-chan struct{}, error)
	semaphore func(p *patterned, n int) distlock.Locker
	readWrite func(l distlock.Locker, readers int) (read, write distlock.Locker)

	mu   sync.Mutex
	last map[string]time.Time // the runs of this process, for one that trusts its own clock
}

func (p *patterned) in() design {
	return design{locker: func(e *env, c *driver.Client) distlock.Locker {
		return &patterned{Client: c, env: e, elect: p.elect, once: p.once, maxHold: p.maxHold, wanted: p.wanted,
			semaphore: p.semaphore, readWrite: p.readWrite, last: make(map[string]time.Time)}
	}}
}

// Elect is as in package distlock, and so are the others.
func (p *patterned) Elect(ctx context.Context, name string, fn leadFunc, opts ...distlock.Option) election {
	if p.elect != nil {
		return p.elect(ctx, p.Client, name, fn, opts)
	}
	return patterns.Elect(ctx, p.Client, name, fn, opts...)
}

// OncePer is a pattern.
func (p *patterned) OncePer(ctx context.Context, name string, period time.Duration, fn func(context.Context) error, opts ...distlock.Option) (bool, error) {
	if p.once != nil {
		return p.once(ctx, p, name, period, fn)
	}
	return patterns.OncePer(ctx, p.Client, name, period, fn, opts...)
}

// MaxHold is a pattern.
func (p *patterned) MaxHold(d time.Duration) distlock.Locker {
	if p.maxHold != nil {
		return p.maxHold(p.Client, d)
	}
	return patterns.MaxHold(p.Client, d)
}

// Wanted is a pattern.
func (p *patterned) Wanted(ctx context.Context, lock distlock.Lock, every time.Duration) (<-chan struct{}, error) {
	if p.wanted != nil {
		return p.wanted(ctx, p, lock, every)
	}
	return patterns.Wanted(ctx, p.Client, lock, every)
}

// Semaphore is a pattern.
func (p *patterned) Semaphore(n int) distlock.Locker {
	if p.semaphore != nil {
		return p.semaphore(p, n)
	}
	return patterns.Semaphore(p.Client, n)
}

// ReadWrite is a pattern.
func (p *patterned) ReadWrite(readers int) (read, write distlock.Locker) {
	if p.readWrite != nil {
		return p.readWrite(p.Client, readers)
	}
	return patterns.ReadWrite(p.Client, readers)
}

// termMutants get elections and periods wrong.
func termMutants() []Mutant {
	return []Mutant{
		{
			Name: "TwoLeaders", Flaw: "takes the leadership for a term that is not renewed, and leads on when it is over",
			Seen:     "the leader key with a TTL of many tutorials",
			KilledBy: []Kill{{"elect/one-leader", "became the leader at"}},
			design:   (&patterned{elect: leadUnwatched}).in(),
		},
		{
			Name: "FlagLeader", Flaw: "says that it leads until its function has returned",
			Seen:     "a Boolean that two callbacks set",
			KilledBy: []Kill{{"elect/never-stale", "Leader says that it leads"}},
			design:   (&patterned{elect: leadByFlag}).in(),
		},
		{
			Name: "OnceByOwnClock", Flaw: "remembers in the process when the job has run, beside a plain lock",
			Seen:     "gocron with a distributed locker: fifteen runs in 1.1 s",
			KilledBy: []Kill{{"once/per-period", "ran it again"}},
			design:   (&patterned{once: onceByOwnClock}).in(),
		},
		{
			Name: "OnceUsedUp", Flaw: "keeps the record of a run that has failed",
			KilledBy: []Kill{{"once/failed-run", "the only run of it has failed"}},
			design:   (&patterned{once: onceUsedUp}).in(),
		},
		{
			Name: "OnceNotExtended", Flaw: "lets the record end in the middle of a run that takes longer than the period",
			Seen:     "ShedLock's lockAtMostFor, shorter than the job",
			KilledBy: []Kill{{"once/long-run", "was still under way"}},
			design:   (&patterned{once: onceNotExtended}).in(),
		},
	}
}

// shareMutants get caps, semaphores and read/write locks wrong.
func shareMutants() []Mutant {
	return []Mutant{
		{
			Name: "HoldsForEver", Flaw: "has no cap: the lock of a stuck holder is renewed as long as it lives",
			KilledBy: []Kill{{"maxhold/cap", "was not told"}},
			design:   (&patterned{maxHold: func(l distlock.Locker, _ time.Duration) distlock.Locker { return l }}).in(),
		},
		{
			Name: "CapAsTerm", Flaw: "makes the cap a fixed term of the TTL, and so ends locks that are far from it",
			KilledBy: []Kill{{"maxhold/unnoticed", "was lost"}},
			design:   (&patterned{maxHold: func(l distlock.Locker, _ time.Duration) distlock.Locker { return unrenewed{l} }}).in(),
		},
		{
			Name: "NeverWanted", Flaw: "never tells a holder that another waits",
			KilledBy: []Kill{{"wanted/told", "A was not told by"}},
			design: (&patterned{wanted: func(context.Context, *patterned, distlock.Lock, time.Duration) (<-chan struct{}, error) {
				return nil, nil
			}}).in(),
		},
		{
			Name: "AlwaysWanted", Flaw: "tells every holder that another waits",
			KilledBy: []Kill{{"wanted/nobody", "B has only tried"}},
			design:   (&patterned{wanted: wantedByAnybody}).in(),
		},
		{
			Name: "GivesWay", Flaw: "unlocks what is wanted, without being asked to",
			Seen:     "leases that a server takes back as soon as another comes",
			KilledBy: []Kill{{"wanted/told", "has not unlocked it"}},
			design:   (&patterned{wanted: givingWay}).in(),
		},
		{
			Name: "OneTooMany", Flaw: "has a slot more than permits",
			KilledBy: []Kill{{"sem/bounded", "all permits are taken"}},
			design:   (&patterned{semaphore: func(p *patterned, n int) distlock.Locker { return patterns.Semaphore(p.Client, n+1) }}).in(),
		},
		{
			Name: "CountedPermits", Flaw: "counts permits in the store, and down only when a holder unlocks",
			Seen:     "semaphores made of INCR and DECR",
			KilledBy: []Kill{{"sem/dead-holder", "the lease of a dead holder is over"}},
			design:   (&patterned{semaphore: func(p *patterned, n int) distlock.Locker { return &counting{p.Client, p.env, n} }}).in(),
		},
		{
			Name: "WriterStarves", Flaw: "lets readers in beside others while a writer waits for all of them to leave",
			Seen:     "read/write locks that count readers",
			KilledBy: []Kill{{"rw/writer-served", "readers come and go"}},
			design:   (&patterned{readWrite: readersFirst}).in(),
		},
		{
			Name: "ReadersBesideWriter", Flaw: "keeps writers apart from each other, and not from readers",
			KilledBy: []Kill{{"rw/exclusive", "readers hold it"}},
			design:   (&patterned{readWrite: writersApart}).in(),
		},
	}
}

// standing is an election by functions.
type standing struct {
	leader func() (int64, bool)
	wait   func() error
}

func (s standing) Leader() (int64, bool) { return s.leader() }
func (s standing) Wait() error           { return s.wait() }

func leadUnwatched(ctx context.Context, l distlock.Locker, name string, fn leadFunc, opts []distlock.Option) election {
	var term atomic.Int64
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			lock, err := l.Lock(ctx, name, append(opts, distlock.NoRenewal())...)
			if err != nil {
				continue
			}
			term.Store(lock.Token())
			_ = fn(ctx, lock.Token())
			term.Store(0)
			_ = lock.Unlock(context.WithoutCancel(ctx))
			time.Sleep(100 * time.Millisecond)
		}
		done <- ctx.Err()
	}()
	return standing{func() (int64, bool) { return term.Load(), term.Load() != 0 }, func() error { return <-done }}
}

func leadByFlag(ctx context.Context, l distlock.Locker, name string, fn leadFunc, opts []distlock.Option) election {
	var term atomic.Int64
	e := patterns.Elect(ctx, l, name, func(ctx context.Context, number int64) error {
		term.Store(number)
		defer term.Store(0)
		return fn(ctx, number)
	}, opts...)
	return standing{func() (int64, bool) { return term.Load(), term.Load() != 0 }, e.Wait}
}

func onceByOwnClock(ctx context.Context, p *patterned, name string, period time.Duration, fn func(context.Context) error) (bool, error) {
	p.mu.Lock()
	recent := time.Since(p.last[name]) < period*9/10
	p.mu.Unlock()
	if recent {
		return false, nil
	}
	lock, err := p.TryLock(ctx, name)
	if errors.Is(err, distlock.ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	began := time.Now()
	err = fn(ctx)
	if err == nil {
		p.mu.Lock()
		p.last[name] = began
		p.mu.Unlock()
	}
	return true, errors.Join(err, lock.Unlock(context.WithoutCancel(ctx)))
}

func onceUsedUp(ctx context.Context, p *patterned, name string, period time.Duration, fn func(context.Context) error) (bool, error) {
	var failed error
	ran, err := patterns.OncePer(ctx, p.Client, name, period, func(ctx context.Context) error {
		failed = fn(ctx)
		return nil
	})
	return ran, errors.Join(failed, err)
}

func onceNotExtended(ctx context.Context, p *patterned, name string, period time.Duration, fn func(context.Context) error) (bool, error) {
	lock, err := p.TryLock(ctx, name, distlock.TTL(period*9/10), distlock.NoRenewal())
	if errors.Is(err, distlock.ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := fn(ctx); err != nil {
		return true, errors.Join(err, lock.Unlock(context.WithoutCancel(ctx)))
	}
	return true, nil
}

// wantedByAnybody tells at once.
func wantedByAnybody(context.Context, *patterned, distlock.Lock, time.Duration) (<-chan struct{}, error) {
	told := make(chan struct{})
	close(told)
	return told, nil
}

func givingWay(ctx context.Context, p *patterned, lock distlock.Lock, every time.Duration) (<-chan struct{}, error) {
	told, err := patterns.Wanted(ctx, p.Client, lock, every)
	if err == nil {
		go func() {
			select {
			case <-told:
				_ = lock.Unlock(ctx)
			case <-lock.Done():
			}
		}()
	}
	return told, err
}

// unrenewed is a Locker of fixed terms.
type unrenewed struct{ distlock.Locker }

// Lock implements distlock.Locker.
func (u unrenewed) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return u.Locker.Lock(ctx, name, append(opts, distlock.NoRenewal())...)
}

// counting is a semaphore that has a number in the store, and a lock to change it under.
type counting struct {
	*driver.Client
	env *env
	n   int
}

// Lock implements distlock.Locker.
func (s *counting) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		number := int64(0)
		s.env.with(name, func(e *entry) {
			if e.token < int64(s.n) {
				e.token++
				number = e.token
			}
		})
		if number == 0 {
			continue
		}
		lock, err := s.Client.Lock(ctx, fmt.Sprintf("%s/%d", name, time.Now().UnixNano()*10+number), opts...)
		if err != nil {
			s.env.with(name, func(e *entry) { e.token-- })
			return nil, err
		}
		return &counted{lock, func() { s.env.with(name, func(e *entry) { e.token-- }) }}, nil
	}
	return nil, fmt.Errorf("%w: %w", distlock.ErrHeld, ctx.Err())
}

type counted struct {
	distlock.Lock
	down func()
}

// Unlock implements distlock.Lock.
func (c *counted) Unlock(ctx context.Context) error {
	c.down()
	return c.Lock.Unlock(ctx)
}

// readersFirst is a read/write lock without a queue: a reader takes any slot, and a
// writer tries for all of them until none is taken.
func readersFirst(l distlock.Locker, readers int) (read, write distlock.Locker) {
	return patterns.Semaphore(l, readers), &impatientWriter{l, readers}
}

type impatientWriter struct {
	distlock.Locker
	readers int
}

// Lock implements distlock.Locker.
func (w *impatientWriter) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		all := make([]distlock.Lock, 0, w.readers)
		for slot := range w.readers {
			lock, err := w.Locker.TryLock(ctx, fmt.Sprintf("%s/%d", name, slot), opts...)
			if err != nil {
				break
			}
			all = append(all, lock)
		}
		if len(all) == w.readers {
			return &several{all[len(all)-1], all[:len(all)-1]}, nil
		}
		for _, lock := range all {
			_ = lock.Unlock(ctx)
		}
	}
	return nil, fmt.Errorf("%w: %w", distlock.ErrHeld, ctx.Err())
}

type several struct {
	distlock.Lock
	others []distlock.Lock
}

// Unlock implements distlock.Lock.
func (s *several) Unlock(ctx context.Context) error {
	err := s.Lock.Unlock(ctx)
	for _, lock := range s.others {
		err = errors.Join(err, lock.Unlock(ctx))
	}
	return err
}

func writersApart(l distlock.Locker, readers int) (read, write distlock.Locker) {
	return patterns.Semaphore(l, readers), patterns.Prefix(l, "writer of ")
}
