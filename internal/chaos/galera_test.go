package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/chaos"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
)

// galera are clusters of MariaDB, each of three nodes that take writes and certify them against each other's.
var galera = []topology{
	{"mysql, Galera", "a Galera cluster of three, and a proxy that sends all clients to one node, which is killed or frozen: then to another", "", false, func(t *testing.T) deployment {
		e := servers.EnsembleForTest(t, servers.MySQL, 3, servers.Setup{})
		f := newFront(t, e.Members)
		return deployment{
			Store: harness.Store{Servers: e.Members, Addrs: []string{f.Addr()}, URL: func(addrs ...string) string {
				return withTable(e.Members[0].URLVia(strings.Join(addrs, ",")))
			}},
			faults: []chaos.Fault{
				f.fault("node killed", (*servers.Server).Kill, (*servers.Server).Restart),
				f.fault("node frozen", (*servers.Server).Pause, (*servers.Server).Resume),
			},
		}
	}},
	{"mysql, Galera, all nodes", "a Galera cluster of three with clients on each node, and one clock; nodes are killed or frozen, one at a time", "", false, func(t *testing.T) deployment {
		e := servers.EnsembleForTest(t, servers.MySQL, 3, servers.Setup{})
		var faults []chaos.Fault
		for i, s := range e.Members {
			node := fmt.Sprintf("node %d", i+1)
			faults = append(faults, killed(node, s), frozen(node, s))
		}
		return spread(e, faults...)
	}},
	{"mysql, Galera, clock steps", "a Galera cluster of three with clients on each node; the clock of one of them is set forward and back by 3 s", "forward ends the others' leases early", false, func(t *testing.T) deployment {
		e := servers.EnsembleForTest(t, servers.MySQL, 3, servers.Setup{Clocks: true})
		return spread(e, jumped(e.Members[0], 3*time.Second), jumped(e.Members[0], -3*time.Second))
	}},
}

func withTable(url string) string { return url + "?create=true" }

// spread has each client on a node of its own, as long as there are some.
func spread(e *servers.Ensemble, faults ...chaos.Fault) deployment {
	return deployment{
		Store:  harness.Store{Servers: e.Members},
		faults: faults,
		open: func(ctx context.Context, client int) (distlock.Locker, error) {
			return open(ctx, withTable(e.Members[client%len(e.Members)].URL()), "")
		},
	}
}

// front is a proxy that sends all connections to one of several servers, as HAProxy does where the others are backups.
type front struct {
	net.Listener
	nodes []*servers.Server

	mu     sync.Mutex
	node   int
	conns  []net.Conn
	broken *servers.Server // by the present fault
}

func newFront(t *testing.T, nodes []*servers.Server) *front {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{Listener: l, nodes: nodes}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			running.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		f.turn(0)
		running.Wait()
	})
	return f
}

func (f *front) Addr() string { return f.Listener.Addr().String() }

// serve forwards one connection until either side ends it, or the front turns to another node.
func (f *front) serve(in net.Conn) {
	defer in.Close()
	f.mu.Lock()
	node := f.node
	f.mu.Unlock()
	out, err := net.DialTimeout("tcp", f.nodes[node].Addr(), time.Second)
	if err != nil {
		return
	}
	defer out.Close()
	f.mu.Lock()
	turned := f.node != node
	f.conns = append(f.conns, in, out)
	f.mu.Unlock()
	if turned {
		return
	}
	go func() {
		defer in.Close()
		_, _ = io.Copy(in, out)
	}()
	_, _ = io.Copy(out, in)
}

// turn ends all connections, and sends new ones to another node.
func (f *front) turn(to int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.Close()
	}
	f.conns, f.node = nil, to
}

// fault breaks the node that has the clients, and turns to the next one.
func (f *front) fault(name string, do, undo step) chaos.Fault {
	return chaos.Fault{
		Name: name,
		Break: func(ctx context.Context) error {
			i := f.node // nothing else changes it
			f.broken = f.nodes[i]
			if err := do(f.broken, ctx); err != nil {
				return err
			}
			f.turn((i + 1) % len(f.nodes))
			return nil
		},
		Mend:   func(ctx context.Context) error { return undo(f.broken, ctx) },
		Length: outage, // mostly for longer than the cluster waits for it
	}
}

// Clients on all nodes of a Galera cluster lock one name as often as they can. What one node grants is certified
// against what the others do: there is one holder at a time, with tokens that rise. Then the clocks come apart, and
// the documented gap opens: a node that is ahead ends the others' leases early. The tokens tell the holders apart.
func TestGalera(t *testing.T) {
	if os.Getenv("DISTLOCK_CHAOS_EVENTS") == "" {
		t.Skip("for make topologies: it starts three MariaDB")
	}
	e := servers.EnsembleForTest(t, servers.MySQL, 3, servers.Setup{Clocks: true})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var nodes []distlock.Locker
	for _, s := range e.Members {
		l, err := open(ctx, withTable(s.URL()), "")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		nodes = append(nodes, l)
	}
	t.Run("storm", func(t *testing.T) { storm(t, ctx, e, nodes) })
	t.Run("clocks", func(t *testing.T) { apart(t, ctx, e, nodes) })
}

func storm(t *testing.T, ctx context.Context, e *servers.Ensemble, nodes []distlock.Locker) {
	const each = 100
	var inside atomic.Int32
	var latest int64 // the lock's business, as far as it is one
	var workers sync.WaitGroup
	for i, l := range nodes {
		for range 4 {
			workers.Go(func() {
				for range each {
					lock, err := l.Lock(ctx, "storm", distlock.TTL(20*time.Second))
					if err != nil {
						t.Errorf("Lock through node %d: %v", i+1, err)
						return
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d holders at a time", n)
					}
					if lock.Token() <= latest {
						t.Errorf("the token %d came after %d", lock.Token(), latest)
					}
					latest = lock.Token()
					inside.Add(-1)
					if err := lock.Unlock(ctx); err != nil {
						t.Errorf("Unlock through node %d: %v", i+1, err)
					}
				}
			})
		}
	}
	workers.Wait()
	conflicts, err := e.Conflicts(ctx)
	if err != nil || conflicts == 0 {
		t.Errorf("the nodes did not get into each other's way, so this shows nothing (error %v)", err)
	}
	t.Logf("%d locks, %d conflicts between the nodes", len(nodes)*4*each, conflicts)
}

func apart(t *testing.T, ctx context.Context, e *servers.Ensemble, nodes []distlock.Locker) {
	if err := e.Members[1].Jump(ctx, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		// Lock, as what was given back through another node is so here a moment later.
		first, err := nodes[0].Lock(ctx, "account", distlock.TTL(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		second, err := nodes[1].TryLock(ctx, "account", distlock.TTL(5*time.Second))
		if err != nil {
			t.Fatalf("TryLock through the node that is 10 s ahead: %v", err)
		}
		if first.Err() != nil || second.Err() != nil {
			t.Errorf("no overlap, so this shows nothing: %v, %v", first.Err(), second.Err())
		}
		if second.Token() <= first.Token() {
			t.Errorf("round %d: the second holder has token %d, the first has %d: a stale write would be accepted", round, second.Token(), first.Token())
		}
		if _, err := nodes[0].TryLock(ctx, "account"); !errors.Is(err, distlock.ErrHeld) {
			t.Errorf("TryLock through the node whose lock was taken over: %v, want ErrHeld", err)
		}
		if err := first.Unlock(ctx); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Unlock of the first holder: %v, want ErrLost", err)
		}
		if err := second.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
}
