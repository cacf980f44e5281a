package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

// grantAll grants everything; its renewals get no answer.
type grantAll struct{}

func (grantAll) Capabilities() Capabilities { return Capabilities{Backend: "test"} }

func (g grantAll) Claim(Request) Claim { return g }

func (grantAll) Try(context.Context) (Grant, error) { return Grant{Token: 1, TTL: time.Minute}, nil }

func (grantAll) Wait(context.Context) error { return nil }

func (grantAll) Release(context.Context) error { return nil }

func (grantAll) Renew(ctx context.Context, batch []Renewal) {
	<-ctx.Done()
	for i := range batch {
		batch[i].Answer(Grant{}, ctx.Err())
	}
}

// A process that is slow between the beginning of Close and the end of the beliefs, or
// was stopped there, has not lost the locks with a renewal under way.
func TestSlowCloseLosesNothing(t *testing.T) {
	var lost error
	l, err := New(grantAll{}, &distlock.Options{TTL: time.Minute, Observer: &distlock.Observer{
		Lost: func(e distlock.Lost) { lost = e.Cause },
	}})
	testkit.Must(t, err)
	renewed, err := l.Lock(context.Background(), "renewed")
	testkit.Must(t, err)
	other, err := l.Lock(context.Background(), "other")
	testkit.Must(t, err)
	extended := make(chan error)
	go func() { extended <- renewed.Extend(context.Background(), time.Minute) }()
	for {
		h := renewed.(*Handle)
		h.mu.Lock()
		begun := h.renewing != nil
		h.mu.Unlock()
		if begun {
			break
		}
		time.Sleep(time.Millisecond)
	}
	other.(*Handle).mu.Lock() // Close stops here
	closed := make(chan error)
	go func() { closed <- l.Close() }()
	time.Sleep(4 * callGrace)
	other.(*Handle).mu.Unlock()
	if err := <-extended; !errors.Is(err, distlock.ErrUnlocked) {
		t.Errorf("Extend: %v", err)
	}
	testkit.Should(t, <-closed)
	if lost != nil || !errors.Is(renewed.Err(), distlock.ErrUnlocked) || renewed.Unlock(context.Background()) != nil {
		t.Errorf("a loss was told: %v; the lock has ended by %v", lost, renewed.Err())
	}
}

// Unlock and Extend count for Close before they begin anything that Close would leave to them.
func TestCloseCountsCallsFromTheStart(t *testing.T) {
	for what, call := range map[string]func(*Handle){
		"Unlock": func(h *Handle) { _ = h.Unlock(context.Background()) },
		"Extend": func(h *Handle) { _ = h.Extend(context.Background(), time.Minute) },
	} {
		t.Run(what, func(t *testing.T) {
			l, err := New(grantAll{}, &distlock.Options{TTL: time.Minute})
			testkit.Must(t, err)
			lock, err := l.Lock(context.Background(), "x")
			testkit.Must(t, err)
			h := lock.(*Handle)
			h.mu.Lock() // the call stops here
			done := make(chan struct{})
			go func() { defer close(done); call(h) }()
			testkit.Until(t, "the call counts", func() bool {
				l.tasks.mu.Lock()
				defer l.tasks.mu.Unlock()
				return l.tasks.running == 1
			})
			h.mu.Unlock()
			testkit.Should(t, l.Close())
			<-done
		})
	}
}

// slowReleases is grantAll at a store that does not answer; each Release takes its time beyond
// the end of its context.
type slowReleases struct {
	grantAll
	last, under *atomic.Int32 // calls on an ended context, and those not over
}

func (s slowReleases) Claim(Request) Claim { return s }

func (s slowReleases) Release(ctx context.Context) error {
	s.under.Add(1)
	defer s.under.Add(-1)
	if ctx.Err() != nil {
		s.last.Add(1)
	}
	<-ctx.Done()
	time.Sleep(300 * time.Millisecond)
	return ctx.Err()
}

// The last call of a claim that had no other may take its time. Close has these calls made side
// by side, so that none comes later than Close waits.
func TestCloseMakesLastCallsSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := slowReleases{last: new(atomic.Int32), under: new(atomic.Int32)}
		l, err := New(d, &distlock.Options{TTL: time.Minute})
		testkit.Must(t, err)
		const locks = 500
		for i := range locks {
			if _, err := l.Lock(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute) // all are lost
		testkit.Should(t, l.Close())
		if last, under := d.last.Load(), d.under.Load(); last < locks/2 || under > 0 {
			t.Errorf("%d last calls, of which %d are not over, want most of %d, and none", last, under, locks)
		}
	})
}

// failingReleases is grantAll with releases that fail.
type failingReleases struct {
	grantAll
	ended *[]bool // for each call, whether its context had ended
}

func (f failingReleases) Claim(Request) Claim { return f }

func (f failingReleases) Release(ctx context.Context) error {
	*f.ended = append(*f.ended, ctx.Err() != nil)
	return errors.New("refused")
}

// A release that is given up ends with a call on a context that has ended, and none before had one.
func TestGivenUpReleaseHasALastCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []bool
		l, err := New(failingReleases{ended: &ended}, &distlock.Options{TTL: time.Minute})
		testkit.Must(t, err)
		lock, err := l.Lock(t.Context(), "x")
		testkit.Must(t, err)
		_ = lock.Unlock(t.Context())
		time.Sleep(2 * time.Minute)
		if lock.Unlock(t.Context()) == nil {
			t.Error("released")
		}
		if i := slices.Index(ended, true); i < 1 || i != len(ended)-1 {
			t.Errorf("the first call on an ended context is number %d of %d", i+1, len(ended))
		}
		testkit.Should(t, l.Close())
	})
}

// renewsAll is grantAll that renews.
type renewsAll struct {
	grantAll
	renewed *atomic.Int32
}

func (d renewsAll) Claim(Request) Claim { return d }

func (d renewsAll) Renew(_ context.Context, batch []Renewal) {
	for i := range batch {
		batch[i].Answer(Grant{Token: 1, TTL: time.Minute}, nil)
	}
	d.renewed.Add(int32(len(batch)))
}

// However many locks are due at once, the scheduler takes a part of them at a time: every Lock and Unlock needs its
// mutex. The rest follows at once.
func TestSchedulerTakesAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locks = 10 * maxBatch
		d := renewsAll{renewed: new(atomic.Int32)}
		l, err := New(d, &distlock.Options{TTL: time.Minute})
		testkit.Must(t, err)
		for i := range locks {
			_, err := l.Lock(t.Context(), fmt.Sprint(i))
			testkit.Must(t, err)
		}
		l.renew.mu.Lock()
		l.renew.timer.Stop() // the test is the timer
		l.renew.mu.Unlock()
		time.Sleep(20 * time.Second)
		due := l.renew.take()
		if len(due) > maxTake {
			t.Errorf("%d of %d locks are taken at once", len(due), locks)
		}
		l.renew.dispatch(due)
		l.renew.run()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := d.renewed.Load(); got != locks {
			t.Errorf("%d of %d locks are renewed when they are due", got, locks)
		}
		testkit.Should(t, l.Close())
	})
}

// A call that its caller's deadline ends is over by its deadline, and not cancelled: drivers word the two differently.
func TestCallsEndByTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{}
		for range 1000 {
			caller, cancel := context.WithTimeout(t.Context(), time.Second)
			call := c.call(caller, t.Context(), time.Minute)
			<-call.Done()
			if err := call.Err(); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("the call ended by %q", err)
			}
			call.end()
			cancel()
		}
	})
}
