package pglock

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

// Waiters that look because a connection has come or gone keep their order, also where the list begins anew. One that was told of
// a release, and came too late, is first, once.
func TestOrderOfTheList(t *testing.T) {
	t.Parallel()
	name, pool := table(t), poolWith(t, nil)
	l := locker(t, pool, name)
	listen(t, l)
	d := storeOf(t, l)
	value[distlock.Lock](t)(l.TryLock(t.Context(), "x"))
	newClaim := func() *claim {
		return d.Claim(driver.Request{Name: "x", Owner: testkit.Owner(), TTL: time.Minute}).(*claim)
	}
	a, b := newClaim(), newClaim()
	look := func(what string, in, want []*claim) {
		t.Helper()
		for _, c := range in {
			if _, err := c.Try(t.Context()); !errors.Is(err, distlock.ErrHeld) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		var have, order []byte
		testkit.Must(t, pool.QueryRow(t.Context(), "SELECT waiters FROM "+name+" WHERE name = 'x'").Scan(&have))
		for _, c := range want {
			order = append(order, c.owner...)
		}
		if !bytes.Equal(have, order) {
			t.Errorf("%s: on the list are %x, want %x", what, have, order)
		}
	}
	anew := "UPDATE " + name + " SET waiters = '' WHERE name = 'x'"
	ab, ba := []*claim{a, b}, []*claim{b, a}
	look("they come", ab, ab)
	d.listener.set(true, d.listener.drop)
	for _, c := range ab {
		testkit.Must(t, c.Wait(t.Context()))
	}
	look("both were woken", ab, ab)
	exec(t, pool, anew)
	look("the list begins anew", ab, ab)

	exec(t, pool, "UPDATE "+name+" SET waiters = substring(waiters from 17) WHERE name = 'x'")
	d.listener.tell(string(a.owner))
	look("one was told, and came too late", []*claim{a}, ab)
	exec(t, pool, anew)
	look("the list begins anew after that", ba, ba)
}
