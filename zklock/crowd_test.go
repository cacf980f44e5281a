package zklock

import (
	"errors"
	"maps"
	"testing"

	"github.com/distlock-go/distlock"
)

// TestCrowdedRequests: where others were when this process last looked, the cheaper
// request makes the node, since the list is needed anyway; that costs one request
// more when they have gone, once. The token is the node's czxid however it was learnt.
func TestCrowdedRequests(t *testing.T) {
	w, prefix, conn := newWire(t), freshPrefix(), connect(t)
	other := claimOn(t, conn, prefix, "x", false)
	first := claimOn(t, w.connect(), prefix, "x", false)
	again := func() *claim {
		return first.driver.Claim(distlock.Request{
			Name: "x", Owner: newOwner(), TTL: first.ttl, Holder: "me",
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
		grant, err := c.Try(t.Context())
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
		if err := c.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	try(other, nil)
	if err := first.makeParent(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.count()
	try(first, distlock.ErrHeld)
	release(first)
	expect("a try on a held name", map[int32]int{opMulti: 1, opChildren: 1, opDelete: 1})

	waiter := again()
	try(waiter, distlock.ErrHeld)
	expect("another", map[int32]int{opCreate: 1, opChildren: 1})
	release(other)
	if err := waiter.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.count() // the claim ahead may be known to be gone or not
	try(waiter, nil)
	release(waiter)
	w.count()

	alone := again()
	try(alone, nil)
	release(alone)
	expect("the first when they had gone", map[int32]int{opCreate: 1, opChildren: 1, opGetData: 1, opDelete: 1})
	next := again()
	try(next, nil)
	release(next)
	expect("the next", map[int32]int{opMulti: 1, opDelete: 1})
}

// TestDeletedWhileJoining: a node that goes between the list and the look at its
// number is no grant.
func TestDeletedWhileJoining(t *testing.T) {
	w, prefix, byHand := newWire(t), freshPrefix(), connect(t)
	c := claimOn(t, w.connect(), prefix, "x", false)
	if err := c.makeParent(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.driver.parents.setCrowded(c.parent(), true)
	w.on(func(op int32) fault {
		if op == opGetData {
			for _, n := range claimsOf(t, byHand, prefix, "x") {
				if err := byHand.Delete(c.parent()+"/"+n.name, -1); err != nil {
					t.Error(err)
				}
			}
		}
		return pass
	})
	if grant, err := c.Try(t.Context()); err == nil || errors.Is(err, distlock.ErrHeld) {
		t.Errorf("Try of a claim that was deleted: %+v, %v", grant, err)
	}
	if err := c.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
