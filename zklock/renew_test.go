package zklock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
)

// TestDeletedByHand: what an administrator takes away is lost within a renewal.
func TestDeletedByHand(t *testing.T) {
	prefix, conn := freshPrefix(), connect(t)
	l := open(t, nil, prefix, 3*time.Second)
	for _, how := range []string{"before the first renewal", "later"} {
		held := lock(t, l, "x")
		if how == "later" {
			first := held.Deadline()
			eventually(t, bound, func() string {
				if held.Deadline().Equal(first) {
					return "not renewed"
				}
				return ""
			})
		}
		began := time.Now()
		if err := conn.Delete(held.Path(), -1); err != nil {
			t.Fatal(err)
		}
		select {
		case <-held.Done():
		case <-time.After(bound):
			t.Fatal("the loss was not told")
		}
		if took := time.Since(began); took > 2*time.Second || !errors.Is(held.Err(), distlock.ErrLost) {
			t.Errorf("%s: after %v: %v", how, took, held.Err())
		}
	}
}

// TestDeletedWhileRenewed: what goes away before the proof is not confirmed by it.
func TestDeletedWhileRenewed(t *testing.T) {
	w, prefix, byHand := newWire(t), freshPrefix(), connect(t)
	c := claimOn(t, w.connect(), prefix, "x", false)
	if _, err := c.Try(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Renew(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	c.driver.proof = proof{}
	w.on(func(op int32) fault {
		if op == opMulti {
			if err := byHand.Delete(c.path, -1); err != nil {
				t.Error(err)
			}
		}
		return pass
	})
	if _, err := c.Renew(t.Context(), time.Second); !errors.Is(err, distlock.ErrLost) {
		t.Error("a renewal of what was gone when it was confirmed:", err)
	}
	if err := c.Release(t.Context()); !errors.Is(err, distlock.ErrLost) {
		t.Error("Release:", err)
	}
}

// TestRenewalIsShared: locks are renewed by the request for their session, however
// many they are.
func TestRenewalIsShared(t *testing.T) {
	w, prefix := newWire(t), freshPrefix()
	l := open(t, w, prefix, 3*time.Second)
	locks := make([]*Lock, 100)
	for i := range locks {
		locks[i] = lock(t, l, fmt.Sprint(i))
	}
	renewed := func() {
		t.Helper()
		before := make([]time.Time, len(locks))
		for i, l := range locks {
			before[i] = l.Deadline()
		}
		eventually(t, bound, func() string {
			for i, l := range locks {
				if !l.Deadline().After(before[i]) {
					return "not all were renewed"
				}
			}
			return ""
		})
	}
	renewed() // sets the watches
	w.count()
	began := time.Now()
	for range 3 {
		renewed()
	}
	// All are due together, about twice a second, but not to the millisecond.
	got, periods := w.count(), int(time.Since(began)/(500*time.Millisecond))+1
	if got[opMulti] > 3*periods || len(got) != 1 {
		t.Errorf("%d locks were renewed by the requests %v in %d periods", len(locks), got, periods)
	}
	for _, l := range locks {
		unlock(t, l)
	}
}
