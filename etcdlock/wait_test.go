package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
)

// Two processes lock the same name again and again. Each follows the same key each
// time, and watches it once. An event from before the queue was read wakes up nobody.
// An event after it is not lost, even before Wait.
func testWatchIsUsedAgain(t *testing.T, s *servers.Server) {
	a := newStore(t, s).counted() // the key of a put that was sent twice is used no more
	b := storeAt(t, s, a.prefix).counted()
	b.watches.period, b.watches.limit = time.Hour, time.Hour
	for i := range 10 {
		for range i % 3 { // deletions of the key while nobody waits
			a.release(a.won("x", nil), nil)
		}
		holder := a.won("x", nil)
		waiter := b.claim("x", nil)
		b.held(waiter)
		if i%2 == 0 {
			a.release(holder, nil)
			b.woken(b.waiting(waiter))
		} else {
			woken := b.waiting(waiter)
			select {
			case err := <-woken:
				t.Fatalf("turn %d: Wait has returned before the release: %v", i, err)
			default:
			}
			a.release(holder, nil)
			b.woken(woken)
		}
		b.grant(waiter)
		b.release(waiter, nil)
	}
	if n := b.wire.count("WatchCreate"); n != 1 {
		t.Errorf("%d watches, want 1", n)
	}
	// One Range proves each of ten grants; the first watch began after the queue was
	// read, and found that the store had been written to.
	if n := b.wire.count("Range"); n > 11 {
		t.Errorf("%d reads, want at most 11", n)
	}
}

// What a watch says from before the queue was read wakes nobody.
func TestTold(t *testing.T) {
	deleted := func(revisions ...int64) (r clientv3.WatchResponse) {
		for _, rev := range revisions {
			r.Events = append(r.Events, &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{ModRevision: rev}})
		}
		return r
	}
	for _, tt := range []struct {
		what               string
		said               clientv3.WatchResponse
		open, wakes, moved bool
	}{
		{"a progress notification", deleted(), true, false, false},
		{"a deletion of an earlier claim", deleted(7), true, false, false},
		{"one as of the read", deleted(7, 9), true, false, false},
		{"the release", deleted(10), true, true, true},
		{"the release behind another", deleted(8, 10), true, true, true},
		{"an event without a key", clientv3.WatchResponse{Events: []*clientv3.Event{{}}}, true, true, false},
		{"the end by compaction", clientv3.WatchResponse{CompactRevision: 12}, true, true, false},
		{"the end", clientv3.WatchResponse{}, false, true, false},
	} {
		ended := false
		c := &claim{waiting: &waiting{asOf: 9, watch: watch{key: "x", cancel: func() { ended = true }}}}
		if wakes := c.told(tt.said, tt.open); wakes != tt.wakes || c.moved != tt.moved || ended != (wakes && !c.moved) {
			t.Errorf("%s: wakes %v, moved %v, the watch has ended %v", tt.what, wakes, c.moved, ended)
		}
	}
}

// The watch of a waiter does not begin, because the member asked has stopped. The
// waiter wakes up through another member.
func testHungWatch(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	others := storeAt(t, s, st.prefix)
	holder := others.won("x", nil)
	waiter := st.claim("x", nil)
	st.held(waiter)
	st.wire.next("Watch", hang)
	// It gives up a watch that does not begin, and the next one has another stream.
	if err := waiter.Wait(t.Context()); err != nil {
		t.Fatal("the first Wait:", err)
	}
	st.held(waiter)
	st.watches.limit = time.Hour
	woken := st.waiting(waiter)
	st.eventually("there is a watch", func() bool { return st.wire.count("WatchCreate") > 0 })
	others.release(holder, nil)
	st.woken(woken)
	st.grant(waiter)
	st.release(waiter, nil)
}

// As long as watches are refused, the engine is told to poll, and Wait does not wake it up
// again and again.
func testRefusedWatch(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	st.watches.limit = time.Hour
	holder := storeAt(t, s, st.prefix).won("x", nil)
	waiter := st.claim("x", nil)
	noWake := func(want bool) {
		t.Helper()
		var held *driver.Held
		if _, err := waiter.Try(t.Context()); !errors.As(err, &held) || held.NoWake != want || held.Token != holder.rev {
			t.Fatalf("Try: %+v, want a HeldError with NoWake %v", err, want)
		}
	}
	blocks := func(method string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		done, before := make(chan error, 1), st.wire.count(method)
		go func() { done <- waiter.Wait(ctx) }()
		st.eventually("it has asked for a watch", func() bool { return st.wire.count(method) > before })
		if method == "Watch" { // refused
			st.eventually("the watch is refused", func() bool { return len(st.beginning) == 0 })
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("Wait: %v, want it to block", err)
		}
	}
	noWake(false)
	st.wire.each("Watch", deposed)
	st.woken(st.waiting(waiter))
	for range 3 {
		noWake(true)
		blocks("Watch")
	}
	noWake(true)
	st.wire.faults(nil)
	blocks("WatchCreate")
	noWake(false)
	st.release(waiter, nil)
}

// An idle watch ends with its period, or with the driver, and there are only so many.
func TestIdleWatches(t *testing.T) {
	i := &idleWatches{period: time.Hour, byKey: make(map[string]idleWatch)}
	ended := make(chan string, 2*maxIdle)
	of := func(key string) *watch { return &watch{key: key, cancel: func() { ended <- key }} }
	want := func(key string) {
		t.Helper()
		if got := <-ended; got != key {
			t.Errorf("%q has ended, want %q", got, key)
		}
	}
	i.put(&watch{})
	i.put(of("a"))
	i.put(of("a"))
	want("a") // the second
	if w, ok := i.take("a"); !ok || w.key != "a" {
		t.Errorf("take: %v, %v", w.key, ok)
	}
	if _, ok := i.take("a"); ok {
		t.Error("a watch was taken twice")
	}
	i.period = time.Millisecond
	i.put(of("b"))
	want("b")
	if _, ok := i.take("b"); ok {
		t.Error("a watch that has ended was taken")
	}
	i.period = time.Hour
	for n := range maxIdle {
		i.put(of(string(rune('A' + n))))
	}
	i.put(of("one too many"))
	want("one too many")
	i.close()
	for range maxIdle {
		<-ended
	}
	i.put(of("late"))
	want("late")
	if len(ended) != 0 {
		t.Errorf("%d more have ended", len(ended))
	}
}
