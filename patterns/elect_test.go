package patterns_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

var errWork = errors.New("the work has failed")

// untilEnd leads until its context ends, and returns what ended it.
func untilEnd(ctx context.Context, _ int64) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestElect(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		ctx, cancel := context.WithCancel(bg)
		resign := make(chan struct{})
		first := patterns.Elect(ctx, l, "x", func(ctx context.Context, term int64) error {
			if lock, ok := distlock.FromContext(ctx); !ok || lock.Token() != term {
				t.Error("the context does not carry the lock of the term")
			}
			select {
			case <-resign:
				return errWork
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		synctest.Wait()
		second := patterns.Elect(ctx, rival, "x", untilEnd)
		time.Sleep(10 * time.Minute)
		was, ok := first.Leader()
		if _, both := second.Leader(); !ok || was <= 0 || both || first.Err() != nil {
			t.Fatalf("after ten minutes: first leads %v with term %d and error %v, second %v", ok, was, first.Err(), both)
		}

		close(resign)
		time.Sleep(40 * time.Millisecond) // less than the shortest pause
		wantErr(t, "Err of one that resigned", first.Err(), errWork)
		term, ok := second.Leader()
		if _, both := first.Leader(); both || !ok || term <= was {
			t.Fatalf("after the first resigned: first leads %v, second %v with term %d after %d", both, ok, term, was)
		}

		cancel()
		for _, e := range []*patterns.Election{first, second} {
			wantErr(t, "Wait", e.Wait(), context.Canceled)
			if _, ok := e.Leader(); ok {
				t.Error("leads after the end")
			}
		}
		if lock, err := l.TryLock(bg, "x"); err != nil {
			t.Errorf("the name is not free after the end: %v", err)
		} else {
			_ = lock.Unlock(bg)
		}
	})
}

// A loss ends the context of the leader, and its nil then does not end its part.
func TestElectStandsAgainAfterLoss(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		var terms []int64
		e := patterns.Elect(ctx, l, "x", func(ctx context.Context, term int64) error {
			terms = append(terms, term)
			<-ctx.Done()
			if len(terms) == 1 {
				wantErr(t, "the cause", context.Cause(ctx), distlock.ErrLost)
			}
			return nil
		})
		synctest.Wait()
		testkit.Must(t, distlock.Break(bg, rival, "x", 0))
		time.Sleep(time.Minute)
		synctest.Wait()
		term, ok := e.Leader()
		if !ok || len(terms) != 2 || term != terms[1] || terms[1] <= terms[0] {
			t.Errorf("leads %v with term %d; the terms were %d", ok, term, terms)
		}
		cancel()
		wantErr(t, "Wait", e.Wait(), context.Canceled)
	})
}

func TestElectEnds(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		never := func(context.Context, int64) error {
			t.Error("the function was called")
			return nil
		}
		e := patterns.Elect(bg, l, "x", func(context.Context, int64) error { return nil })
		if err := e.Wait(); err != nil || e.Err() != nil {
			t.Errorf("after nil, Wait returns %v and Err %v", err, e.Err())
		}
		wantErr(t, "no name", patterns.Elect(bg, l, "", never).Wait(), distlock.ErrInvalid)
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		mustLock(t, bg, rival, "x")
		err := patterns.Elect(ctx, l, "x", never).Wait()
		wantErr(t, "never elected", err, context.DeadlineExceeded)
		wantErr(t, "never elected", err, distlock.ErrHeld)

		leader := patterns.Elect(bg, rival, "y", untilEnd)
		synctest.Wait()
		testkit.Should(t, rival.Close())
		if _, ok := leader.Leader(); ok {
			t.Error("leads with a closed Locker")
		}
		wantErr(t, "Wait after Close", leader.Wait(), distlock.ErrClosed)
	})
}

// A function that fails at once is called ever less often, and does not keep others out.
func TestElectBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T, l, rival *memlock.Locker) {
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		calls := 0
		e := patterns.Elect(ctx, l, "x", func(context.Context, int64) error {
			calls++
			return errWork
		})
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if calls < 180 || calls > 400 {
			t.Errorf("called %d times in half an hour, want once in five to ten seconds", calls)
		}
		wantErr(t, "Err", e.Err(), errWork)
		mustLock(t, bg, rival, "x")
		err := e.Wait()
		wantErr(t, "Wait", err, context.DeadlineExceeded)
	})
}

// stopped is the lock of a process that was stopped for longer than its lease and has
// just come back: its clock is past the deadline, and Done is not closed yet.
type stopped struct {
	distlock.Lock
	lost error
}

func (s *stopped) Err() error            { return s.lost }
func (s *stopped) Done() <-chan struct{} { return nil }

type wrapped struct {
	distlock.Locker
	wrap func(distlock.Lock) distlock.Lock
}

func (w wrapped) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	lock, err := w.Locker.Lock(ctx, name, opts...)
	if err != nil {
		return nil, err
	}
	return w.wrap(lock), nil
}

func TestElectStoppedLeader(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		var s *stopped
		ctx, cancel := context.WithCancel(bg)
		e := patterns.Elect(ctx, wrapped{l, func(lock distlock.Lock) distlock.Lock {
			s = &stopped{Lock: lock}
			return s
		}}, "x", untilEnd)
		synctest.Wait()
		if _, ok := e.Leader(); !ok {
			t.Error("does not lead")
		}
		s.lost = distlock.ErrLost
		if _, ok := e.Leader(); ok {
			t.Error("leads although its lock says that it is lost")
		}
		cancel()
		wantErr(t, "Wait", e.Wait(), context.Canceled)
	})
}

// A process that is out of the election for good says why.
func TestElectErrOfNever(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		e := patterns.Elect(bg, l, "", func(context.Context, int64) error { return nil })
		wantErr(t, "Wait", e.Wait(), distlock.ErrInvalid)
		if !errors.Is(e.Err(), distlock.ErrInvalid) {
			t.Errorf("Err is %v", e.Err())
		}
	})
}
