package cronlock_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/integrations/cronlock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

func open(t *testing.T, url string) distlock.Locker {
	t.Helper()
	l, err := backends.Open(t.Context(), url)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Should(t, l.Close()) })
	return l
}

// recorder is a cron.Logger.
type recorder struct {
	mu   sync.Mutex
	errs []error
}

func (*recorder) Info(string, ...any) {}
func (r *recorder) Error(err error, _ string, _ ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// Processes that start a tick one after the other, each when the last is done, run a
// job once; and once more in the next period.
func TestOnce(t *testing.T) {
	servers.Each(t, func(t *testing.T, url string) {
		const period = 5 * time.Second // a look has nearly as long for its answer
		var runs atomic.Int32
		log := new(recorder)
		job := cron.FuncJob(func() { runs.Add(1) })
		var jobs []cron.Job
		for range 3 {
			jobs = append(jobs, cronlock.Once(open(t, url), "report", period, log)(job))
		}
		began := time.Now()
		for _, j := range jobs {
			j.Run()
		}
		if n := runs.Load(); n != 1 && time.Since(began) < period*9/10 { // then it may run again
			t.Errorf("%d runs in one tick, want 1", n)
		}
		for runs.Load() < 2 && time.Since(began) < 30*time.Second {
			time.Sleep(20 * time.Millisecond)
			jobs[2].Run()
		}
		if n := runs.Load(); n < 2 {
			t.Errorf("%d runs after %v", n, time.Since(began))
		}
		if len(log.errs) > 0 {
			t.Errorf("logged: %v", log.errs)
		}
	})
}

// A job cannot be stopped, so its loss is told.
func TestLossIsLogged(t *testing.T) { synctest.Test(t, testLossIsLogged) }

func testLossIsLogged(t *testing.T) {
	locker, err := memlock.New(memlock.NewStore(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	log := new(recorder)
	cronlock.Once(locker, "report", 100*time.Millisecond, log)(cron.FuncJob(func() {
		if err := distlock.Break(t.Context(), locker, cronlock.Prefix+"report", 0); err != nil {
			t.Error(err)
		}
		time.Sleep(200 * time.Millisecond) // longer than the period: the lock would be extended
	})).Run()
	if len(log.errs) != 1 || !errors.Is(log.errs[0], distlock.ErrLost) {
		t.Errorf("logged: %v", log.errs)
	}
}

// A panic goes on to cron.Recover, and the name is free.
func TestPanic(t *testing.T) {
	locker, log := open(t, "mem://panic"), new(recorder)
	wrap := cron.NewChain(cron.Recover(log), cronlock.Once(locker, "report", time.Minute, log))
	wrap.Then(cron.FuncJob(func() { panic("no report") })).Run()
	if len(log.errs) != 1 || !strings.Contains(log.errs[0].Error(), "no report") {
		t.Errorf("logged: %v", log.errs)
	}
	ran := false
	wrap.Then(cron.FuncJob(func() { ran = true })).Run()
	if !ran {
		t.Error("a job that has panicked keeps the name")
	}
}

// A store that fails is no reason to run a job everywhere.
func TestStoreFails(t *testing.T) {
	locker, log := open(t, "mem://closed"), new(recorder)
	locker.Close()
	cronlock.Once(locker, "report", time.Minute, log)(cron.FuncJob(func() { t.Error("it ran") })).Run()
	if len(log.errs) != 1 || !errors.Is(log.errs[0], distlock.ErrClosed) {
		t.Errorf("logged: %v", log.errs)
	}
}
