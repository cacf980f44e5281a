package backends_test

import (
	"context"
	"errors"
	"log"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/patterns"
)

// The bodies of these functions are the code blocks of docs/patterns.md, letter by letter,
// as TestPatternsPage sees to.

func pageElect(ctx context.Context, locker distlock.Locker, schedule func(context.Context, int64) error) error {
	election := patterns.Elect(ctx, locker, "scheduler", func(ctx context.Context, term int64) error {
		return schedule(ctx, term) // until ctx ends: with the term, or with the context of Elect
	})
	http.HandleFunc("/leader", func(w http.ResponseWriter, _ *http.Request) { // for routing
		if _, leads := election.Leader(); !leads {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	err := election.Wait()
	return err
}

func pageOncePer(ctx context.Context, locker distlock.Locker, sendInvoices func(context.Context) error) error {
	for tick := time.Tick(time.Hour); ; {
		select {
		case <-tick:
		case <-ctx.Done():
			return ctx.Err()
		}
		ran, err := patterns.OncePer(ctx, locker, "invoices", time.Hour, sendInvoices)
		log.Println("ran it here:", ran, err) // the error is the job's, the store's, or that the lock was lost in the middle
	}
}

func pageMaxHold(ctx context.Context, locker distlock.Locker, writeReport func(context.Context) error) error {
	limited := patterns.MaxHold(locker, 10*time.Minute)
	err := distlock.Do(ctx, limited, "report", func(ctx context.Context) error {
		return writeReport(ctx) // its context ends after nine minutes
	})
	return err
}

func pageWanted(ctx context.Context, locker distlock.Locker, lock distlock.Lock, step int, steps []func(context.Context) error) error {
	wanted, err := patterns.Wanted(ctx, locker, lock, time.Second)
	if err != nil {
		return err
	}
	return distlock.Run(ctx, lock, func(ctx context.Context) error { // unlocks
		for ; step < len(steps); step++ {
			select {
			case <-wanted:
				return nil // the rest is for later
			default:
			}
			if err := steps[step](ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

func pageSemaphore(ctx context.Context, locker distlock.Locker) error {
	uploads := patterns.Semaphore(locker, 5)
	permit, err := uploads.Lock(ctx, "uploads")
	if err != nil {
		return err
	}
	defer permit.Unlock(ctx)
	return nil
}

func pageReadWrite(ctx context.Context, locker distlock.Locker) error {
	read, write := patterns.ReadWrite(locker, 8) // eight readers at a time, the same in all processes
	reader, err := read.Lock(ctx, "catalogue")
	if err != nil {
		return err
	}
	defer reader.Unlock(ctx)
	_ = write
	return nil
}

func TestPatternsPage(t *testing.T) {
	code := strings.ReplaceAll(read(t, "patterns_page_test.go"), "\n\t", "\n")
	testkit.Quoted(t, "../docs/patterns.md", 6, code)
}

// The blocks do what the page says of them.
func TestPatternsPageRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		locker, err := backends.Open(ctx, "mem://")
		testkit.Must(t, err)
		defer locker.Close()
		if err := pageElect(ctx, locker, func(_ context.Context, term int64) error {
			if term <= 0 {
				t.Errorf("term %d", term)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		runs := 0
		day, over := context.WithTimeout(ctx, 24*time.Hour+time.Minute)
		defer over()
		if err := pageOncePer(day, locker, func(context.Context) error {
			if runs++; runs == 12 {
				return errors.New("no paper")
			}
			return nil
		}); !errors.Is(err, context.DeadlineExceeded) || runs != 24 {
			t.Errorf("the job ran %d times: %v", runs, err)
		}
		began := time.Now()
		err = pageMaxHold(ctx, locker, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
		if took := time.Since(began); took != 9*time.Minute || !errors.Is(err, distlock.ErrLost) {
			t.Errorf("a report that is stuck: %v after %v", err, took)
		}
		lock, err := locker.Lock(ctx, "reindex")
		testkit.Must(t, err)
		left := 3
		work := func(ctx context.Context) error {
			if left--; left == 1 { // something urgent comes
				go func() { _, _ = locker.Lock(ctx, "reindex") }()
			}
			time.Sleep(2 * time.Second)
			return nil
		}
		err = pageWanted(ctx, locker, lock, 0, []func(context.Context) error{work, work, work})
		if err != nil || left != 1 || !errors.Is(lock.Err(), distlock.ErrUnlocked) {
			t.Errorf("%d steps are left of three, of which the second is the last that nobody waits for: %v", left, err)
		}
		testkit.Should(t, errors.Join(pageSemaphore(ctx, locker), pageReadWrite(ctx, locker)))
	})
}
