package zklock

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/testkit"
)

func lock(t testing.TB, l distlock.Locker, name string, opts ...distlock.Option) *Lock {
	t.Helper()
	held, err := l.Lock(t.Context(), name, opts...)
	testkit.Must(t, err)
	return held.(*Lock)
}

func unlock(t testing.TB, l distlock.Lock) {
	t.Helper()
	testkit.Must(t, l.Unlock(t.Context()))
}

// TestRequests pins what each operation costs: one round trip to take a free lock
// and one to give it back. A TryLock reads first, which costs a free one a round trip more:
// a refused one that wrote would refuse others, also when the name is free again.
func TestRequests(t *testing.T) {
	t.Parallel()
	w, prefix := newProxy(t), freshPrefix()
	a, b := open(t, w, prefix, 30*time.Second), open(t, nil, prefix, 30*time.Second)
	expect := func(what string, want map[int32]int) {
		t.Helper()
		if got := w.count(); !maps.Equal(got, want) {
			t.Errorf("%s took the requests %v, want %v", what, got, want)
		}
	}
	unlock(t, lock(t, a, "another")) // makes the prefix
	w.count()
	unlock(t, lock(t, a, "x"))
	expect("Lock and Unlock of a new name", map[int32]int{opContainer: 1, opMulti: 1, opDelete: 1})
	keep(t, connect(t), prefix, "kept")
	unlock(t, lock(t, a, "kept")) // makes the name known
	w.count()
	unlock(t, lock(t, a, "kept"))
	expect("Lock and Unlock", map[int32]int{opMulti: 1, opDelete: 1})

	held, err := a.TryLock(t.Context(), "kept")
	testkit.Must(t, err)
	unlock(t, held)
	expect("TryLock and Unlock", map[int32]int{opExists: 1, opMulti: 1, opDelete: 1})

	theirs := lock(t, b, "kept")
	if _, err := a.TryLock(t.Context(), "kept"); !errors.Is(err, distlock.ErrHeld) {
		t.Fatal(err)
	}
	expect("a failed TryLock", map[int32]int{opExists: 1, opSync: 1, opChildren: 1})
	if n := len(claimsOf(t, connect(t), prefix, "kept")); n != 1 {
		t.Errorf("a failed TryLock left %d claims beside the holder's", n-1)
	}
	unlock(t, theirs)
}

// TestWaiterRequests: to look again costs a waiter one small question, however long
// the queue is, and to be woken nothing.
func TestWaiterRequests(t *testing.T) {
	t.Parallel()
	w, prefix := newProxy(t), freshPrefix()
	holder, waiter := claimOn(t, connect(t), prefix, "x", false), claimOn(t, w.connect(), prefix, "x", false)
	grants(t, holder)
	refuses(t, waiter)
	eventually(t, func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := waiter.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if !waiter.watch.answered() || !waiter.waiting.watch.answered() {
			return "the watches are not set"
		}
		return ""
	})
	w.count()
	refuses(t, waiter)
	if got := w.count(); !maps.Equal(got, map[int32]int{opExists: 1}) {
		t.Error("looking again took", got)
	}
	testkit.Must(t, holder.Release(t.Context()))
	testkit.Must(t, waiter.Wait(t.Context()))
	grants(t, waiter)
	if got := w.count(); len(got) > 0 {
		t.Error("being woken took", got)
	}
	testkit.Should(t, waiter.Release(t.Context()))
}

// TestEntry looks at what is stored.
func TestEntry(t *testing.T) {
	t.Parallel()
	prefix, conn := freshPrefix(), connect(t)
	l := open(t, nil, prefix, 30*time.Second)
	held := lock(t, l, "a/b", distlock.Holder("me"))
	if !strings.HasPrefix(held.Path(), prefix+"/a%2Fb/claim-") {
		t.Error("the path is", held.Path())
	}
	data, stat, err := conn.Get(held.Path())
	testkit.Must(t, err)
	if string(data) != "me" || stat.Czxid != held.Token() || stat.EphemeralOwner == 0 {
		t.Errorf("the node has %q, czxid %d, owner %d; the token is %d", data, stat.Czxid, stat.EphemeralOwner, held.Token())
	}
	status, err := l.Inspect(t.Context(), "a/b")
	testkit.Must(t, err)
	if !status.Held || status.Holder != "me" || status.Token != held.Token() || !status.AcquiredAt.IsZero() {
		t.Errorf("the status is %+v", status)
	}
	// Path and version 0 fence a write to ZooKeeper.
	guard := func() error {
		_, err := conn.Multi(&zk.CheckVersionRequest{Path: held.Path(), Version: 0},
			&zk.SetDataRequest{Path: prefix, Data: []byte("x"), Version: -1})
		return err
	}
	testkit.Should(t, guard())
	unlock(t, held)
	if err := guard(); !errors.Is(err, zk.ErrNoNode) {
		t.Error("a write under a lock that has ended:", err)
	}
}

// TestForeignChildren: what others keep beside our claims holds no name.
func TestForeignChildren(t *testing.T) {
	t.Parallel()
	prefix, conn := freshPrefix(), connect(t)
	l := open(t, nil, prefix, 30*time.Second)
	first := lock(t, l, "x") // or the server would remove the node of the name
	for _, name := range []string{"_c_6c9d1d7e-lock-0000000000", "note", "claim-0000000000", "lock-"} {
		if _, err := conn.Create(prefix+"/x/"+name, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Create(prefix+"/%zz", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	unlock(t, first)
	held := lock(t, l, "x")
	list, err := l.List(t.Context(), "")
	if err != nil || len(list) != 1 || list[0].Name != "x" {
		t.Errorf("the list is %+v, %v", list, err)
	}
	unlock(t, held)
}

// TestContainerGone: the server removes an empty name at any time, and counts from
// 0 again when it comes back. Tokens rise nevertheless.
func TestContainerGone(t *testing.T) {
	t.Parallel()
	prefix, conn := freshPrefix(), connect(t)
	l := open(t, nil, prefix, 30*time.Second)
	first := lock(t, l, "x")
	unlock(t, first)
	eventually(t, func() string {
		if there, _, err := conn.Exists(prefix + "/x"); err != nil || there {
			return "the empty container is still there"
		}
		return ""
	})
	second := lock(t, l, "x")
	defer unlock(t, second)
	if !strings.HasSuffix(second.Path(), "-0000000000") {
		t.Error("the count did not start again:", second.Path())
	}
	if second.Token() <= first.Token() {
		t.Errorf("the token fell from %d to %d", first.Token(), second.Token())
	}
}

// TestNoContainers: servers before 3.5 do not know them.
func TestNoContainers(t *testing.T) {
	t.Parallel()
	w, prefix := newProxy(t), freshPrefix()
	w.each(refuse, opContainer)
	l := open(t, w, prefix, 30*time.Second)
	unlock(t, lock(t, l, "x"))
	_, stat, err := connect(t).Exists(prefix + "/x")
	if err != nil || stat.EphemeralOwner != 0 {
		t.Errorf("the node of the name is owned by %d: %v", stat.EphemeralOwner, err)
	}
}

// TestWatchesDoNotPile: 50 waits in vain leave one watch, not 50.
func TestWatchesDoNotPile(t *testing.T) {
	w, prefix := newProxy(t), freshPrefix()
	holder, waiter := open(t, nil, prefix, 30*time.Second), open(t, w, prefix, 30*time.Second)
	held := lock(t, holder, "x")
	w.count()
	calls := 0
	for waits := 0; waits < 50; calls++ {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := waiter.Lock(ctx, "x")
		cancel()
		if errors.Is(err, distlock.ErrHeld) {
			waits++
		} else if !errors.Is(err, context.DeadlineExceeded) { // too short to get as far as waiting
			t.Fatal(err)
		}
	}
	// Each of the waiter's own nodes had a watch, and it has fired when the node was
	// deleted. The holder has one too, once it has been renewed.
	eventually(t, func() string {
		if n := monitor(t, server(t).Addr(), "zk_watch_count"); n != "1" && n != "2" {
			return "the server has " + n + " watches, want 1, or 2"
		}
		return ""
	})
	// One request for each own node, and one for the holder's, not one for each wait.
	if n := w.count()[opGetData]; n > calls+12 {
		t.Errorf("%d calls, 50 of which have waited, have set %d watches", calls, n)
	}
	unlock(t, held)
}
