package patterns_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

func run(t *testing.T, l distlock.Locker, period time.Duration, fn func(context.Context) error) (bool, error) {
	t.Helper()
	return patterns.OncePer(bg, l, "job", period, fn)
}

func nothing(context.Context) error { return nil }

// mustRun and mustNot run the job, and fail unless it did, or did not, run.
func mustRun(t *testing.T, when string, l distlock.Locker, period time.Duration) {
	t.Helper()
	if ran, err := run(t, l, period, nothing); !ran || err != nil {
		t.Fatalf("%s: ran %v, error %v; want a run", when, ran, err)
	}
}

func mustNot(t *testing.T, when string, l distlock.Locker, period time.Duration) {
	t.Helper()
	if ran, err := run(t, l, period, nothing); ran || err != nil {
		t.Fatalf("%s: ran %v, error %v; want neither", when, ran, err)
	}
}

// term is how long a record lasts: a tenth less than the period, but no more than 30 s.
func term(period time.Duration) time.Duration { return period - min(period/10, 30*time.Second) }

// The period counts from the begin of a run, to the millisecond if its process lives.
func TestOncePerPeriod(t *testing.T) {
	for _, period := range []time.Duration{100 * time.Millisecond, time.Second, time.Minute, 24 * time.Hour, 300 * 24 * time.Hour} {
		t.Run(period.String(), func(t *testing.T) {
			var losses atomic.Int32
			synctest.Test(t, func(t *testing.T) {
				store := memlock.NewStore(nil)
				o := &memlock.Options{}
				o.Observer = &distlock.Observer{Lost: func(distlock.Lost) { losses.Add(1) }}
				l, err := memlock.New(store, o)
				testkit.Must(t, err)
				defer l.Close()
				rival := open(t, store)
				mustRun(t, "first", l, period)
				time.Sleep(term(period) - time.Millisecond)
				mustNot(t, "a millisecond before the end", rival, period)
				mustNot(t, "a millisecond before the end, same Locker", l, period)
				time.Sleep(2 * time.Millisecond)
				mustRun(t, "a millisecond after the end", rival, period)
			})
			if n := losses.Load(); n != 0 {
				t.Errorf("%d records were taken for lost locks", n)
			}
		})
	}
}

// The record of a process that was killed ends with its lease, soon after the period.
func TestOncePerKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dead atomic.Bool
		store := memlock.NewStore(&memlock.StoreOptions{Intercept: func(_ context.Context, c memlock.Call, apply func()) error {
			if c.Op == "release" && dead.Load() {
				return errWork
			}
			apply()
			return nil
		}})
		killed := open(t, store)
		l := open(t, store)
		mustRun(t, "first", killed, time.Minute)
		dead.Store(true)
		time.Sleep(term(time.Minute) - time.Millisecond)
		mustNot(t, "before the end", l, time.Minute)
		time.Sleep(time.Minute/50 + 2*time.Millisecond)
		mustRun(t, "2 % after the end", l, time.Minute)
		dead.Store(false)
	})
}

func TestOncePerFailure(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		ran, err := run(t, l, time.Hour, func(context.Context) error { return errWork })
		wantErr(t, "a job that fails", err, errWork)
		if !ran {
			t.Error("says that it did not run")
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = run(t, l, time.Hour, func(context.Context) error { panic("in a job") })
		}()
		mustRun(t, "after a failure and a panic", rival, time.Hour)
		mustNot(t, "after success", l, time.Hour)

		for _, period := range []time.Duration{0, -1, distlock.MaxTTL + 1} {
			_, err := run(t, l, period, nothing)
			wantErr(t, period.String(), err, distlock.ErrInvalid)
		}
		ctx, cancel := context.WithCancel(bg)
		cancel()
		_, err = patterns.OncePer(ctx, l, "other", time.Hour, nothing)
		wantErr(t, "a context that has ended", err, context.Canceled)
	})
}

// A run that takes longer than its period keeps the name until it is over, and no longer.
func TestOncePerLongRun(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		for _, period := range []time.Duration{100 * time.Millisecond, time.Second, time.Minute} {
			for _, took := range []time.Duration{period / 2, term(period) - 2*time.Millisecond, period, period * 11 / 10, 10 * period} {
				over := time.Now().Add(max(took, term(period)))
				done := make(chan error)
				go func() {
					_, err := run(t, l, period, func(ctx context.Context) error {
						time.Sleep(took)
						return ctx.Err()
					})
					done <- err
				}()
				synctest.Wait()
				time.Sleep(time.Until(over) - time.Millisecond)
				mustNot(t, "before the end of a long run", rival, period)
				testkit.Should(t, <-done)
				time.Sleep(time.Until(over) + time.Millisecond)
				mustRun(t, "after the end", rival, period)
				time.Sleep(period + time.Millisecond)
			}
		}
	})
}

// The end of the caller's context does not end the lock of a job that is still running;
// the loss of the lock ends the context.
func TestOncePerContexts(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		ctx, cancel := context.WithCancel(bg)
		done := make(chan error)
		go func() {
			_, err := patterns.OncePer(ctx, l, "job", time.Second, func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Minute)
				return ctx.Err()
			})
			done <- err
		}()
		synctest.Wait()
		cancel()
		time.Sleep(30 * time.Second)
		mustNot(t, "while it runs", rival, time.Second)
		wantErr(t, "a cancelled job", <-done, context.Canceled)

		go func() {
			_, err := run(t, l, time.Hour, func(ctx context.Context) error {
				if lock, ok := distlock.FromContext(ctx); !ok || lock.Name() != "job" {
					t.Error("the context does not carry the lock")
				}
				<-ctx.Done()
				return context.Cause(ctx)
			})
			done <- err
		}()
		time.Sleep(time.Minute)
		testkit.Must(t, distlock.Break(bg, rival, "job", 0))
		wantErr(t, "a job that has lost its lock", <-done, distlock.ErrLost)
	})
}

// A program that runs its job and ends, as under cron, closes its Locker: the record stays.
func TestOncePerSurvivesClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore(nil)
		once := func() bool {
			l, err := memlock.New(store, nil)
			testkit.Must(t, err)
			ran, err := patterns.OncePer(bg, l, "job", time.Minute, func(context.Context) error { return nil })
			testkit.Should(t, err)
			testkit.Should(t, l.Close())
			return ran
		}
		if !once() || once() {
			t.Error("the first program runs the job, the second one does not")
		}
		time.Sleep(53 * time.Second)
		if once() {
			t.Error("the job was run within the period")
		}
		time.Sleep(7 * time.Second)
		if !once() {
			t.Error("the job was not run after the period")
		}
	})
}

// The record of a program that ends right after its job has the end of the period in it, however long the
// job took: a lock that was extended in the meantime cannot be shortened.
func TestOncePerEveryTick(t *testing.T) {
	for _, period := range []time.Duration{5 * time.Second, 15 * time.Second, 20 * time.Second, time.Minute, 200 * time.Second, time.Hour} {
		for twentieths := range time.Duration(20) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.NewStore(nil)
				for tick := range 3 {
					began := time.Now()
					l := open(t, store)
					ran, err := patterns.OncePer(bg, l, "job", period, func(context.Context) error {
						time.Sleep(period * twentieths / 20)
						return nil
					})
					if !ran || err != nil {
						t.Errorf("tick %d of a job that takes %d twentieths of %v: ran %v, %v", tick+1, twentieths, period, ran, err)
					}
					if err := l.Close(); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Until(began.Add(period)))
				}
			})
		}
	}
}

// A store may take seconds for an answer, which count against the lease: a run beyond its period keeps the name all the same.
func TestOncePerSlowStore(t *testing.T) {
	for slow := range 5 {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.NewStore(&memlock.StoreOptions{Intercept: func(_ context.Context, _ memlock.Call, apply func()) error {
				apply()
				time.Sleep(time.Duration(slow) * time.Second)
				return nil
			}})
			_, err := run(t, open(t, store), time.Minute, func(ctx context.Context) error {
				time.Sleep(2 * time.Minute)
				return context.Cause(ctx)
			})
			if err != nil {
				t.Errorf("with answers after %d s: %v", slow, err)
			}
		})
	}
}

// The end of a record is no loss, also if the process is too busy to end it in time.
func TestRecordIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := memlock.New(memlock.NewStore(nil), &memlock.Options{Options: distlock.Options{
			Observer: &distlock.Observer{Lost: func(e distlock.Lost) { t.Errorf("told of a loss: %+v", e) }},
		}})
		testkit.Must(t, err)
		defer l.Close()
		lock := mustLock(t, bg, l, "job", distlock.TTL(time.Second), distlock.NoRenewal())
		record, ok := distlock.As[interface {
			distlock.Lock
			KeepOnClose()
		}](lock)
		if !ok {
			t.Fatal("the lock cannot be kept")
		}
		record.KeepOnClose()
		time.Sleep(2 * time.Second)
		wantErr(t, "Err after the term", lock.Err(), distlock.ErrUnlocked)
		if err := lock.Unlock(bg); err != nil {
			t.Errorf("Unlock after the term: %v", err)
		}
	})
}

// TestClosedWhileRunning: a Locker that is closed gives the name away, so a run that goes on is none that nobody else could be beside.
func TestClosedWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore(nil)
		rival := open(t, store)
		for what, run := range map[string]func(l distlock.Locker, fn func(context.Context) error) error{
			"Do": func(l distlock.Locker, fn func(context.Context) error) error { return distlock.Do(bg, l, "x", fn) },
			"OncePer": func(l distlock.Locker, fn func(context.Context) error) error {
				_, err := patterns.OncePer(bg, l, "x", time.Minute, fn)
				return err
			},
		} {
			l := open(t, store)
			err := run(l, func(context.Context) error {
				testkit.Should(t, l.Close())
				mustUnlock(t, bg, mustLock(t, bg, rival, "x"))
				return nil
			})
			wantErr(t, what, err, distlock.ErrUnlocked)
		}
	})
}

// TestOncePerIsNotReentrant: the record of a run is no lock that its owner may take once more.
func TestOncePerIsNotReentrant(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		ctx := patterns.WithOwner(bg)
		for i := range 2 {
			ran, err := patterns.OncePer(ctx, patterns.Reentrant(l), "job", time.Hour, func(context.Context) error { return nil })
			if err != nil || ran != (i == 0) {
				t.Errorf("call %d: ran %v, %v", i+1, ran, err)
			}
		}
	})
}
