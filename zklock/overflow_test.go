package zklock

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestLastNumber: when there have been 2^31 claims on a name, the server gives every
// claim the last number. They still exclude each other, and come in order.
func TestLastNumber(t *testing.T) {
	t.Parallel()
	const prefix = "/over"
	s := servers.ForTest(t, servers.ZooKeeper)
	countedTo(t, s, prefix+"/x", 2147483646)
	addr, conn := s.Addr(), connectTo(t, s.Addr())
	lockers := make([]*Locker, 4)
	for i := range lockers {
		l, err := Open(t.Context(), "zk://"+addr+prefix+"?tick_time=200ms&ttl=30s", nil)
		testkit.Must(t, err)
		defer l.Close()
		lockers[i] = l
	}
	held := lock(t, lockers[0], "x")
	if !strings.HasSuffix(held.Path(), "-2147483646") {
		t.Fatal("the counter was not set: the first claim is", held.Path())
	}
	type grant struct {
		i    int
		lock *Lock
	}
	granted := make(chan grant, len(lockers))
	var holders atomic.Int32
	holders.Store(1)
	for i := 1; i < len(lockers); i++ {
		go func() {
			g := grant{i, lock(t, lockers[i], "x")}
			if n := holders.Add(1); n != 1 {
				t.Errorf("locker %d holds %s, and there are %d holders", i, g.lock.Path(), n)
			}
			granted <- g
		}()
		eventually(t, func() string {
			if n := len(claimsOf(t, conn, prefix, "x")); n != i+1 {
				return fmt.Sprintf("%d claims, want %d", n, i+1)
			}
			return ""
		})
	}
	token := held.Token()
	for i := 1; i < len(lockers); i++ {
		if _, err := lockers[0].TryLock(t.Context(), "x"); !errors.Is(err, distlock.ErrHeld) {
			t.Error("a TryLock of what is held:", err)
		}
		status, err := lockers[0].Inspect(t.Context(), "x")
		if err != nil || status.Token != token || status.Waiters != len(lockers)-i {
			t.Errorf("the status is %+v, %v, want token %d", status, err, token)
		}
		// Each waiter has looked, and found itself behind another: it watches that.
		eventually(t, func() string {
			if n, err := strconv.Atoi(monitor(t, addr, "zk_watch_count")); err != nil || n < len(lockers)-i {
				return fmt.Sprintf("%d watches, %v", n, err)
			}
			return ""
		})
		holders.Add(-1)
		unlock(t, held)
		g := <-granted
		if g.i != i || !strings.HasSuffix(g.lock.Path(), "-2147483647") || g.lock.Token() <= token {
			t.Errorf("locker %d has %s with token %d after %d, and %d came first", g.i, g.lock.Path(), g.lock.Token(), token, i)
		}
		held, token = g.lock, g.lock.Token()
	}
	if err := lockers[0].Break(t.Context(), "x", token); err != nil {
		t.Error("Break:", err)
	}
	numbersTurnBack(t, conn, prefix, "x")
}

// numbersTurnBack: of two claims that are under way at once, the server gives the last number to the first, and the one
// after it, which is negative, to the second. But a claim that comes later gets the last number again. It is behind them.
func numbersTurnBack(t *testing.T, conn *zk.Conn, prefix, name string) {
	t.Helper()
	create := func() *zk.CreateRequest {
		return &zk.CreateRequest{Path: stemOf(prefix+"/"+name, testkit.Owner()), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeralSequential}
	}
	made, err := conn.Multi(create(), create()) // so the server numbers both before it has made one
	testkit.Must(t, err)
	if first, second := made[0].String, made[1].String; !strings.HasSuffix(first, "-2147483647") || !strings.HasSuffix(second, "--2147483648") {
		t.Fatalf("the claims are %s and %s", first, second)
	}
	testkit.Must(t, conn.Delete(made[0].String, -1))
	waiter := claimOn(t, conn, prefix, name, false)
	if grant, err := attempt(t, waiter); !errors.Is(err, distlock.ErrHeld) {
		t.Fatalf("%s got what %s holds: %+v, %v", waiter.path, made[1].String, grant, err)
	}
	if !strings.HasSuffix(waiter.path, "-2147483647") {
		t.Error("the later claim is", waiter.path)
	}
	testkit.Must(t, conn.Delete(made[1].String, -1))
	testkit.Must(t, waiter.Wait(t.Context()))
	grants(t, waiter)
	testkit.Must(t, waiter.Release(t.Context()))
}

// countedTo restarts the server. The next claim on a node gets the number.
func countedTo(t *testing.T, s *servers.Server, node string, number int) {
	t.Helper()
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.PID()))
	if _, missing := exec.LookPath("javac"); err != nil || s.PID() == 0 || missing != nil {
		t.Skip("the data of a server can be changed where it is a process of this machine, and there is a Java compiler")
	}
	command := strings.Split(strings.TrimRight(string(args), "\x00"), "\x00")
	data := filepath.Join(filepath.Dir(command[len(command)-1]), "data")
	classes := command[slices.Index(command, "-cp")+1]

	conn := connectTo(t, s.Addr())
	for _, p := range []string{filepath.Dir(node), node} {
		if _, err := conn.Create(p, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	conn.Close()
	testkit.Must(t, s.Kill(t.Context()))
	set := exec.Command("java", "-cp", classes, "testdata/SetCversion.java", data, node, fmt.Sprint(number))
	if out, err := set.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	logs, err := filepath.Glob(filepath.Join(data, "version-2", "log.*"))
	testkit.Must(t, err)
	for _, log := range logs {
		testkit.Must(t, os.Remove(log))
	}
	testkit.Must(t, s.Restart(t.Context()))
}
