package etcdlock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
)

// A learner among the endpoints gets half of the requests, and refuses them all. No
// call of a Locker of Open fails for it, and no lock is lost.
func TestLearner(t *testing.T) {
	e := servers.EnsembleForTest(t, servers.Etcd, 1, servers.Setup{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.AddLearner(ctx); err != nil {
		t.Fatal(err)
	}
	l, err := Open(ctx, e.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	held, err := l.Lock(ctx, "held", distlock.TTL(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	granted := held.Deadline()
	for i := range 20 {
		lock, err := l.Lock(ctx, fmt.Sprint("x", i%2))
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	}
	waited := make(chan error, 1)
	go func() {
		lock, err := l.Lock(ctx, "held")
		if err == nil {
			err = lock.Unlock(ctx)
		}
		waited <- err
	}()
	for !held.Deadline().After(granted.Add(time.Second)) { // renewed, more than once
		select {
		case <-held.Done():
			t.Fatal("lost:", held.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := held.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if err := <-waited; err != nil {
		t.Error("a waiter:", err)
	}
}
