package gocronlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/integrations/gocronlock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

func open(t *testing.T, url string) distlock.Locker {
	t.Helper()
	l, err := backends.Open(t.Context(), url)
	testkit.Must(t, err)
	t.Cleanup(func() {
		testkit.Should(t, l.Close())
	})
	return l
}

func scheduler(t *testing.T, opts ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(opts...)
	testkit.Must(t, err)
	t.Cleanup(func() {
		testkit.Should(t, s.Shutdown())
	})
	return s
}

// plain is the lock that one would write: held while the job runs.
type plain struct{ locker distlock.Locker }

type plainLock struct{ distlock.Lock }

func (p plain) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lock, err := p.locker.TryLock(ctx, key)
	return plainLock{lock}, err
}

func (l plainLock) Unlock(context.Context) error { return l.Lock.Unlock(context.Background()) }

// Three schedulers whose ticks are a fifth of a second apart have a short job of every two
// seconds. How often has it run after some ticks? The runs under a plain lock are counted
// beside, to see whether the distance of the ticks matters.
func TestOncePerTick(t *testing.T) {
	t.Parallel()
	const ticks, every = 3, 2 * time.Second
	servers.Each(t, func(t *testing.T, url string) {
		var ours, naive atomic.Int32
		var lockers []distlock.Locker
		for range 3 {
			lockers = append(lockers, open(t, url))
		}
		start := time.Now().Add(500 * time.Millisecond)
		for i, locker := range lockers {
			for name, tc := range map[string]struct {
				locker gocron.Locker
				runs   *atomic.Int32
			}{
				"ours":  {gocronlock.New(locker, every), &ours},
				"naive": {plain{locker}, &naive},
			} {
				s := scheduler(t, gocron.WithDistributedLocker(tc.locker))
				_, err := s.NewJob(gocron.DurationJob(every), gocron.NewTask(func() { tc.runs.Add(1) }),
					gocron.WithName(name), gocron.WithStartAt(gocron.WithStartDateTime(start.Add(time.Duration(i)*every/10))))
				testkit.Must(t, err)
				s.Start()
			}
		}
		time.Sleep(time.Until(start.Add((ticks-1)*every + every/2)))
		// A slow machine may leave out a tick, but must not run one twice.
		n := ours.Load()
		if begun := int32(time.Since(start)/every) + 1; n < 1 || n > begun { // more than there should be, on a machine that is late
			t.Errorf("%d runs in %d ticks", n, begun)
		}
		if n := naive.Load(); n <= ticks {
			t.Logf("the plain lock has run it %d times only: this run proves nothing", n)
		}
	})
}

// A job goes on when its scheduler shuts down, and its lock with it; the context that
// gocron unlocks with has ended then.
func TestUnlockAfterShutdown(t *testing.T) {
	const period = time.Minute // the lease is almost as long
	synctest.Test(t, func(t *testing.T) {
		l := gocronlock.New(open(t, "mem://"+rand.Text()), period)
		ctx, cancel := context.WithCancel(t.Context())
		lock, err := l.Lock(ctx, "job")
		testkit.Must(t, err)
		cancel()
		time.Sleep(period) // it is over, the job is not
		if _, err := l.Lock(t.Context(), "job"); !errors.Is(err, gocronlock.ErrElsewhere) {
			t.Errorf("a second run beside the first: %v", err)
		}
		testkit.Should(t, lock.Unlock(ctx))
		if lock, err = l.Lock(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		testkit.Should(t, lock.Unlock(t.Context()))
		if _, err := l.Lock(ctx, "job"); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended: %v", err)
		}
	})
}

// The lock is never waited for, and its name has a prefix.
func TestNamesHaveAPrefix(t *testing.T) {
	locker := open(t, "mem://"+rand.Text()) // the name stays taken for a minute
	lock, err := gocronlock.New(locker, time.Minute).Lock(t.Context(), "job")
	testkit.Must(t, err)
	defer lock.Unlock(t.Context())
	if st, err := distlock.Inspect(t.Context(), locker, "gocron/job"); err != nil || !st.Held {
		t.Errorf("%+v, %v", st, err)
	}
}

// One scheduler of three runs the jobs; when it leaves, another one does.
func TestElector(t *testing.T) {
	servers.Each(t, func(t *testing.T, url string) {
		var mu sync.Mutex
		runs := make(map[int]int)
		electors := make([]*gocronlock.Elector, 3)
		for i := range electors {
			electors[i] = gocronlock.NewElector(open(t, url), "leader")
			t.Cleanup(func() {
				testkit.Should(t, electors[i].Close())
			})
			s := scheduler(t, gocron.WithDistributedElector(electors[i]))
			_, err := s.NewJob(gocron.DurationJob(20*time.Millisecond), gocron.NewTask(func() {
				mu.Lock()
				defer mu.Unlock()
				runs[i]++
			}))
			testkit.Must(t, err)
			s.Start()
		}
		first := await(t, &mu, runs, -1)
		testkit.Should(t, electors[first].Close())
		if second := await(t, &mu, runs, first); electors[second].IsLeader(t.Context()) != nil {
			t.Error("a scheduler runs jobs and does not lead")
		}
		if err := electors[first].IsLeader(t.Context()); !errors.Is(err, gocronlock.ErrElsewhere) {
			t.Errorf("who has left leads: %v", err)
		}
	})
}

// await returns the scheduler, other than not, that has run jobs.
func await(t *testing.T, mu *sync.Mutex, runs map[int]int, not int) (found int) {
	t.Helper()
	testkit.Until(t, fmt.Sprint("a job run by a scheduler other than ", not), func() bool {
		mu.Lock()
		defer mu.Unlock()
		for i, n := range runs {
			if i != not && n > 0 {
				found = i
				return true
			}
		}
		return false
	})
	return found
}
