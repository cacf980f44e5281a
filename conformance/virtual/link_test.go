package virtual

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// sent is one request over a link and what became of it.
type sent struct {
	applied, late bool
	err           error
	took          time.Duration
}

func request(l *Link, limit time.Duration) *sent {
	s := new(sent)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	began := time.Now()
	s.err = l.Do(ctx, func() { s.applied = true }, func() { s.late = true })
	s.took = time.Since(began)
	return s
}

func TestLink(t *testing.T) {
	const limit, trip = time.Second, 200 * time.Millisecond
	for _, c := range []struct {
		name  string
		set   func(*Link)
		want  sent
		fired int
		then  func(*Link) // after which late is looked at
	}{
		{name: "healthy", want: sent{applied: true}},
		{name: "reply cut", set: func(l *Link) { l.CutReply(1) }, want: sent{applied: true, err: errCut}, fired: 1},
		{name: "request cut", set: func(l *Link) { l.CutRequest(1) }, want: sent{err: errCut}, fired: 1},
		{name: "the second is cut", set: func(l *Link) { l.CutRequest(2) }, want: sent{applied: true}},
		{name: "disarmed", set: func(l *Link) { l.CutRequest(1); l.Heal() }, want: sent{applied: true}},
		{name: "slow", set: func(l *Link) { l.Delay(trip, 0) }, want: sent{applied: true, took: trip}, fired: 1},
		{name: "too slow there", set: func(l *Link) { l.Delay(3*limit, 0) },
			want: sent{err: context.DeadlineExceeded, took: limit, late: true}, fired: 1,
			then: func(*Link) { time.Sleep(limit) }},
		{name: "too slow back", set: func(l *Link) { l.Delay(3*limit/2, 0) },
			want: sent{applied: true, err: context.DeadlineExceeded, took: limit}, fired: 1},
		{name: "dropped there", set: func(l *Link) { l.Drop(true, false) },
			want: sent{err: context.DeadlineExceeded, took: limit}, fired: 1, then: (*Link).Heal},
		{name: "dropped back", set: func(l *Link) { l.Drop(false, true) },
			want: sent{applied: true, err: context.DeadlineExceeded, took: limit}, fired: 1},
		{name: "request swallowed", set: func(l *Link) { l.DropRequest(1) },
			want: sent{err: context.DeadlineExceeded, took: limit}, fired: 1, then: (*Link).Heal},
		{name: "reply swallowed, then healed", set: func(l *Link) { l.DropReply(1); after(trip, l.Heal) },
			want: sent{applied: true, err: errCut, took: trip}, fired: 1},
		{name: "held, then released", set: func(l *Link) { l.HoldRequest(1); after(trip, l.Release) },
			want: sent{applied: true, took: trip}, fired: 1},
		{name: "held, released too late", set: func(l *Link) { l.HoldRequest(1) },
			want: sent{err: context.DeadlineExceeded, took: limit, late: true}, fired: 1, then: (*Link).Release},
		{name: "held, then cut", set: func(l *Link) { l.HoldRequest(1); after(trip, l.CutAll) },
			want: sent{err: errCut, took: trip}, fired: 2},
		{name: "dropped, then healed", set: func(l *Link) { l.Drop(true, true); after(trip, l.Heal) },
			want: sent{err: errCut, took: trip}, fired: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLink()
				defer l.Close()
				if c.set != nil {
					c.set(l)
				}
				got := request(l, limit)
				if c.then != nil {
					c.then(l)
				}
				synctest.Wait()
				if got.applied != c.want.applied || got.late != c.want.late || got.took != c.want.took || !errors.Is(got.err, c.want.err) {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
				if l.Fired() != c.fired || l.Requests() != 1 {
					t.Errorf("fired %d times over %d requests, want %d over 1", l.Fired(), l.Requests(), c.fired)
				}
				l.Heal()
				if again := request(l, limit); !again.applied || again.err != nil {
					t.Errorf("after Heal: %+v", again)
				}
			})
		})
	}
}

// TestLostForGood: nothing waits for a lost request to arrive. A bubble does not end with a goroutine in it, and a client that
// renews for a month over a dead link would fill the memory.
func TestLostForGood(t *testing.T) {
	for name, lose := range map[string]func(*Link){
		"dropped":   func(l *Link) { l.Drop(true, true) },
		"swallowed": func(l *Link) { l.DropRequest(1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLink()
				lose(l)
				if got := request(l, time.Second); got.applied || got.late || !errors.Is(got.err, context.DeadlineExceeded) {
					t.Errorf("got %+v", got)
				}
			})
		})
	}
}

// after calls f when d has passed.
func after(d time.Duration, f func()) { time.AfterFunc(d, f) }

// TestArrivesInOrder: a request that takes effect late, as on a machine that is late itself, does so before what was due after it.
func TestArrivesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip, limit = 2 * time.Second, 500 * time.Millisecond
		l := NewLink()
		defer l.Close()
		l.Delay(trip, 0)
		var order []string
		left, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		err := l.Do(left, func() { t.Error("it had arrived before its client left") }, func() {
			time.Sleep(trip)
			order = append(order, "first")
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first: %v", err)
		}
		if err := l.Do(t.Context(), func() { order = append(order, "second") }, nil); err != nil {
			t.Errorf("the second: %v", err)
		}
		if want := []string{"first", "second"}; !slices.Equal(order, want) {
			t.Errorf("what took effect: %v, want %v", order, want)
		}
	})
}
