package zklock

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestRoomInSessions: what has no room in a session has the next one, and is held, renewed and freed like all others.
func TestRoomInSessions(t *testing.T) {
	t.Parallel()
	d := openDriver(t, server(t).URL()+freshPrefix()+"?tick_time=200ms&ttl=9s")
	d.idleTime, d.maxBytes = 100*time.Millisecond, 500
	l, err := newLocker(d)
	testkit.Must(t, err)
	defer l.Close()
	sessions := func() (open, bytes int) {
		for c := d.main; c != nil; {
			c.mu.Lock()
			if c.session != nil {
				open++
			}
			bytes += c.bytes
			next := c.next
			c.mu.Unlock()
			c = next
		}
		return open, bytes
	}
	var locks []*Lock
	for i := range 30 {
		locks = append(locks, lock(t, l, fmt.Sprint(i)))
	}
	size := 4 + len(locks[29].Path())
	if open, bytes := sessions(); open < 30*size/500-1 || open > 30*size/500+2 || bytes < 30*(size-1) || bytes > 30*size {
		t.Errorf("%d sessions for %d bytes, of %d for each lock", open, bytes, size)
	}
	for _, l := range locks {
		before := l.Deadline()
		testkit.Until(t, "it is renewed", func() bool { testkit.Must(t, l.Err()); return l.Deadline().After(before) })
	}
	for _, l := range locks {
		unlock(t, l)
	}
	testkit.Until(t, "the sessions behind the first are closed", func() bool { open, bytes := sessions(); return open == 1 && bytes == 0 })
}

// TestNoRoomOnTheUsersConnection: it is the only one, so more is refused, and nothing waits for room.
func TestNoRoomOnTheUsersConnection(t *testing.T) {
	t.Parallel()
	c := claimOn(t, connect(t), freshPrefix(), "x", false)
	c.class.store.maxBytes = c.bytes()
	grants(t, c)
	other := c.class.store.Claim(driver.Request{Name: "y", Owner: testkit.Owner(), TTL: 10 * time.Second})
	if _, err := other.Try(t.Context()); driver.FateOf(err) != driver.Answered || !errors.Is(err, errFull) {
		t.Errorf("beyond the room of the session: %v", err)
	}
	testkit.Must(t, c.Release(t.Context()))
	grants(t, other)
	testkit.Must(t, other.Release(t.Context()))
}

// TestWatchesRefused: a server that does not set the watches again is asked once more, over another connection.
func TestWatchesRefused(t *testing.T) {
	t.Parallel()
	w, conn := newProxy(t), connect(t)
	l := open(t, w, freshPrefix(), 30*time.Second)
	held := lock(t, l, "x", distlock.TTL(9*time.Second))
	before := held.Deadline()
	testkit.Until(t, "it is renewed, and its node watched", func() bool { return held.Deadline().After(before) })
	var asked atomic.Int64
	w.on(func(op int32) fault {
		if op == opSetWatches && asked.Add(1) == 1 {
			return refuse
		}
		return pass
	})
	w.cut()
	testkit.Until(t, "the watches are set", func() bool { return asked.Load() >= 2 })
	testkit.Must(t, held.Err())
	testkit.Must(t, conn.Delete(held.Path(), -1))
	if <-held.Done(); !strings.Contains(held.Err().Error(), "was removed") {
		t.Error(held.Err())
	}
}

const opSetWatches = 101
