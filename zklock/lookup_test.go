package zklock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestContendedRequests: what is asked where others are, and when they have gone. The
// token is the node's czxid.
func TestContendedRequests(t *testing.T) {
	t.Parallel()
	w, prefix, conn := newProxy(t), freshPrefix(), connect(t)
	other := claimOn(t, conn, prefix, "x", false)
	first := claimOn(t, w.connect(), prefix, "x", false)
	again := func() *claim {
		return first.class.store.Claim(driver.Request{
			Name: "x", Owner: testkit.Owner(), TTL: first.ttl, Holder: "me",
		}).(*claim)
	}
	expect := func(what string, want map[int32]int) {
		t.Helper()
		if got := w.count(); !maps.Equal(got, want) {
			t.Errorf("%s took the requests %v, want %v", what, got, want)
		}
	}
	try := func(c *claim, want error) {
		t.Helper()
		grant, err := attempt(t, c)
		if !errors.Is(err, want) {
			t.Fatalf("Try: %v, want %v", err, want)
		}
		if err != nil {
			return
		}
		_, stat, err := conn.Exists(c.path)
		if err != nil || stat.Czxid != grant.Token {
			t.Errorf("the token is %d, the node's czxid %d, %v", grant.Token, stat.Czxid, err)
		}
	}
	release := func(c *claim) {
		t.Helper()
		testkit.Must(t, c.Release(t.Context()))
	}
	keep(t, conn, prefix, "x")
	try(other, nil)
	try(first, distlock.ErrHeld) // makes the name known
	release(first)
	w.count()

	waiter := again()
	try(waiter, distlock.ErrHeld)
	expect("a try on a held name", map[int32]int{opMulti: 1, opChildren: 1})
	release(other)
	testkit.Must(t, waiter.Wait(t.Context()))
	expect("waiting", map[int32]int{opGetData: 2})
	try(waiter, nil)
	release(waiter)
	expect("the grant to a waiter and its release", map[int32]int{opDelete: 1})

	alone := again()
	try(alone, nil)
	release(alone)
	expect("the first when they had gone", map[int32]int{opMulti: 1, opDelete: 1})
}

// TestHolderOfRefusal: the holder is named once the watch has told it.
func TestHolderOfRefusal(t *testing.T) {
	prefix, conn := freshPrefix(), connect(t)
	holder, waiter := claimOn(t, conn, prefix, "x", false), claimOn(t, conn, prefix, "x", false)
	grant, err := attempt(t, holder)
	testkit.Must(t, err)
	try := func() *driver.Held {
		t.Helper()
		_, err := attempt(t, waiter)
		var held *driver.Held
		if !errors.As(err, &held) {
			t.Fatal("Try:", err)
		}
		return held
	}
	if held := try(); held.Token != 0 || held.NoWake {
		t.Errorf("before there is a watch: %+v", held)
	}
	// The number of watches on the server does not tell: other claims have some, and Try must not run beside Wait.
	eventually(t, func() string {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		_ = waiter.Wait(ctx)
		if held := try(); held.Token != grant.Token || held.Holder != "me" || held.NoWake {
			return fmt.Sprintf("with a watch: %+v, want token %d", held, grant.Token)
		}
		return ""
	})
}

// TestDeletedWhileJoining: a node that goes between its creation and the list is no grant.
func TestDeletedWhileJoining(t *testing.T) {
	t.Parallel()
	w, prefix, byHand := newProxy(t), freshPrefix(), connect(t)
	other, c := claimOn(t, byHand, prefix, "x", false), claimOn(t, w.connect(), prefix, "x", false)
	grants(t, other)
	w.before(opChildren, func() {
		for _, n := range claimsOf(t, byHand, prefix, "x") {
			testkit.Should(t, byHand.Delete(c.parent()+"/"+n.name, -1))
		}
	})
	if grant, err := attempt(t, c); err == nil || errors.Is(err, distlock.ErrHeld) {
		t.Errorf("Try of a claim that was deleted: %+v, %v", grant, err)
	}
	testkit.Should(t, c.Release(t.Context()))
}
