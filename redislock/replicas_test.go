package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// replicated starts a master and n replicas that follow it.
func replicated(t *testing.T, n int) (master *servers.Server, replicas []*servers.Server) {
	t.Helper()
	master = servers.ConfiguredForTest(t, servers.Redis, "repl-diskless-sync-delay 0")
	host, port, err := net.SplitHostPort(master.Addr())
	testkit.Must(t, err)
	for range n {
		replicas = append(replicas, servers.ConfiguredForTest(t, servers.Redis, "replicaof "+host+" "+port))
	}
	admin := client(t, master.URL())
	testkit.Until(t, "the replicas follow", func() bool {
		return strings.Count(admin.Info(t.Context(), "replication").Val(), "state=online") == n
	})
	return master, replicas
}

// waitsFor returns a driver that waits for n replicas. It is patient: on a busy machine they are slow.
func waitsFor(t *testing.T, c redis.UniversalClient, n int) *store {
	t.Helper()
	d, err := newStore(c, (&Options{WaitReplicas: n}).clone(), false)
	testkit.Must(t, err)
	d.replicas.max = 2 * time.Second // go-redis reads for 3 s
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// locksSoon locks a name. The replicas of a busy machine may take longer than a Lock waits for them.
func locksSoon(t *testing.T, l *Locker, name string, opts ...distlock.Option) (lock distlock.Lock) {
	t.Helper()
	testkit.Until(t, "it locks", func() bool {
		var err error
		if lock, err = l.Lock(t.Context(), name, opts...); err != nil && !errors.Is(err, errUnreplicated) {
			t.Fatal(err)
		}
		return err == nil
	})
	return lock
}

// A master dies right after the grant. With WaitReplicas the lock is on the replica that becomes
// the master: it refuses others, and the holder renews and releases its lock there.
func TestReplicaHasTheLock(t *testing.T) {
	t.Parallel()
	master, replicas := replicated(t, 1)
	var addr atomic.Value // of the master, as a sentinel would have it
	addr.Store(master.Addr())
	c := redis.NewClient(&redis.Options{Addr: "master", ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
		}})
	defer c.Close()
	l := lockerOn(t, c, &Options{Options: distlock.Options{TTL: long}, WaitReplicas: 1})
	lock := locksSoon(t, l, "x")
	testkit.Must(t, master.Kill(t.Context()))

	promoted := client(t, replicas[0].URL())
	testkit.Must(t, promoted.ReplicaOf(t.Context(), "NO", "ONE").Err())
	rival := driverOn(t, promoted, defaultPrefix)
	if held := refusal(t, rival.tryOnly("x", long)); held.Token != lock.Token() {
		t.Errorf("the new master knows token %d, the holder has %d", held.Token, lock.Token())
	}
	addr.Store(replicas[0].Addr())
	if err := lock.Extend(t.Context(), long); !errors.Is(err, errUnreplicated) {
		t.Errorf("Extend where there is no replica: %v", err)
	}
	testkit.Must(t, lock.Unlock(t.Context()))
	if g := grants(t, rival.tryOnly("x", long)); g.Token <= lock.Token() {
		t.Errorf("the token was %d, and is %d", lock.Token(), g.Token)
	}
}

// A grant that too few replicas have is refused and undone, also if a release of another client has
// made it. One frozen replica of two does no harm where one is enough.
func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	master, replicas := replicated(t, 2)
	admin := client(t, master.URL())
	o := func(n int) *Options {
		return &Options{Options: distlock.Options{TTL: long}, WaitReplicas: n}
	}
	both, one, none := lockerOn(t, admin, o(2)), lockerOn(t, admin, o(1)), lockerOn(t, admin, o(0))
	kept, short := locksSoon(t, both, "kept"), locksSoon(t, both, "short", distlock.TTL(3*time.Second))
	before, err := none.Lock(t.Context(), "handed over")
	testkit.Must(t, err)
	waited := make(chan error)
	go func() {
		_, err := both.Lock(t.Context(), "handed over", distlock.TTL(12*time.Second)) // for a quarter of that it waits for the replicas
		waited <- err
	}()
	testkit.Until(t, "a release would hand the name over", func() bool {
		record := admin.HVals(t.Context(), keyOf(defaultPrefix, "handed over").waiters()).Val()
		return len(record) == 1 && strings.Contains(record[0], ":wake:")
	})
	testkit.Must(t, replicas[0].Pause(t.Context()))

	testkit.Must(t, before.Unlock(t.Context()))
	tooFew := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, errUnreplicated) || errors.Is(err, distlock.ErrHeld) || !strings.Contains(err.Error(), "of 2") {
			t.Errorf("%s: %v, want too few replicas of 2", what, err)
		}
	}
	tooFew("a Lock that waits", <-waited)
	_, err = both.Lock(t.Context(), "x")
	tooFew("Lock", err)
	_, err = both.TryLock(t.Context(), "y")
	tooFew("TryLock", err)
	tooFew("Extend", kept.Extend(t.Context(), 2*long))
	// The renewals wait as well.
	<-short.Done()
	if err := short.Err(); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("a lock that is not renewed at two replicas has ended with %v", err)
	}
	for _, name := range []string{"x", "y", "handed over"} {
		testkit.Must(t, locksSoon(t, one, name).Unlock(t.Context())) // the undoing may be under way
	}

	testkit.Must(t, replicas[0].Resume(t.Context()))
	testkit.Must(t, locksSoon(t, both, "x").Unlock(t.Context()))
	testkit.Must(t, kept.Unlock(t.Context()))
	testkit.Until(t, "nothing is left behind", func() bool { return len(leftovers(t, admin, defaultPrefix)) == 0 })
}

// A grant that a failover forgets before replicas had it was never believed. The claim tries again.
func TestForgottenGrant(t *testing.T) {
	t.Parallel()
	master, _ := replicated(t, 1)
	c := client(t, master.URL())
	d := waitsFor(t, c, 1)
	a := d.claim("x", long)
	operator := driverOn(t, client(t, master.URL()), defaultPrefix)
	broken := errors.New("nothing was confirmed")
	c.AddHook(between{func() { broken = breakSeen(t.Context(), operator, "x") }})
	if _, err := a.Try(t.Context()); driver.FateOf(err) != driver.Again || !errors.Is(err, errForgotten) {
		t.Errorf("Try: %v (%v), want to be asked again", err, driver.FateOf(err))
	}
	testkit.Must(t, broken)
	g := grants(t, a)
	if held := refusal(t, d.tryOnly("x", long)); held.Token != g.Token || a.token != g.Token {
		t.Errorf("the grant has token %d, the claim %d, the server %d", g.Token, a.token, held.Token)
	}
	releases(t, a)
}

// A grant stands whatever its confirmation is refused with: so the fate of the call is unknown, and it is undone.
func TestRefusedConfirmation(t *testing.T) {
	t.Parallel()
	master, _ := replicated(t, 1)
	c, admin := client(t, master.URL()), client(t, master.URL())
	a := waitsFor(t, c, 1).claim("x", long)
	broken := errors.New("nothing was confirmed")
	c.AddHook(between{func() { broken = admin.ACLSetUser(t.Context(), "default", "-pexpire").Err() }})
	if _, err := a.Try(t.Context()); driver.FateOf(err) != driver.Unknown || !strings.Contains(err.Error(), "user executing the script") {
		t.Errorf("Try: %v (%v), want a missing right and an unknown fate", err, driver.FateOf(err))
	}
	testkit.Must(t, broken)
	testkit.Must(t, admin.ACLSetUser(t.Context(), "default", "+pexpire").Err())
	refuses(t, driverOn(t, admin, defaultPrefix).tryOnly("x", long))
	releases(t, a)
}

// A TryLock may have a grant that was not confirmed, and then find the name taken. It is refused as any
// other, also where a copy of its request may still arrive.
func TestUnconfirmedGrantIsAnothers(t *testing.T) {
	t.Parallel()
	drivers, _ := stores(t, 2)
	rival, a := drivers[0].claim("x", long), drivers[1].tryOnly("x", long)
	grants(t, rival)
	a.token, a.ambiguous = 1, true
	refusal(t, a)
	releases(t, rival)
}

// between calls f once, before replicas are asked for the first time: a grant is there, and not
// confirmed.
type between struct{ f func() }

var _ redis.Hook = between{}

func (b between) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (b between) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (b between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	var called atomic.Bool
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[len(cmds)-1].Name() == "wait" && called.CompareAndSwap(false, true) {
			b.f()
		}
		return next(ctx, cmds)
	}
}

// On a cluster each master is asked for its own replicas, and one without any fails its own names
// only, also in a renewal of many.
func testClusterReplicas(t *testing.T, addrs []string, nodes []*redis.Client) {
	bus := nodes[0].ConfigGet(t.Context(), "cluster-port").Val()["cluster-port"]
	admin := client(t, servers.ConfiguredForTest(t, servers.Redis, "cluster-enabled yes", "cluster-port "+servers.SparePort).URL())
	host, port, err := net.SplitHostPort(addrs[0])
	testkit.Must(t, err)
	testkit.Must(t, nodes[0].ConfigSet(t.Context(), "repl-diskless-sync-delay", "0").Err())
	testkit.Must(t, admin.Do(t.Context(), "CLUSTER", "MEET", host, port, bus).Err())
	id := nodeID(t, nodes[0])
	testkit.Until(t, "the replica knows the master", func() bool {
		return admin.Do(t.Context(), "CLUSTER", "REPLICATE", id).Err() == nil // said again, it would break off the copying
	})
	testkit.Until(t, "the replica follows", func() bool {
		return strings.Contains(nodes[0].Info(t.Context(), "replication").Val(), "state=online")
	})

	d := waitsFor(t, clusterClient(t, addrs), 1)
	d.replicas.max = 200 * time.Millisecond // each refusal takes as long
	var batch []driver.Renewal
	var follows []bool
	for i := 0; len(batch) < 2; i++ {
		a := d.claim(fmt.Sprint("x", i), long)
		master, err := d.cluster.MasterForKey(t.Context(), a.key.entry())
		testkit.Must(t, err)
		if follow := master.Options().Addr == addrs[0]; !slices.Contains(follows, follow) {
			batch, follows = append(batch, driver.Renewal{Claim: a, TTL: 2 * long}), append(follows, follow)
		}
	}
	// The replica of a busy machine may take longer than that, and is asked again.
	judge := func(what string, i int, err error) (done bool) {
		t.Helper()
		tooFew := errors.Is(err, errUnreplicated)
		if err != nil && !tooFew || err == nil && !follows[i] {
			t.Errorf("%s at a master with a replica (%v): %v", what, follows[i], err)
		}
		return tooFew != follows[i]
	}
	for i, r := range batch {
		testkit.Until(t, "Try has its outcome", func() bool {
			_, err := r.Claim.Try(t.Context())
			return t.Failed() || judge("Try", i, err)
		})
	}
	testkit.Until(t, "Renew has its outcomes", func() bool {
		d.Renew(t.Context(), batch)
		first, second := judge("Renew", 0, batch[0].Err), judge("Renew", 1, batch[1].Err)
		return t.Failed() || first && second
	})
	for _, r := range batch {
		releases(t, r.Claim.(*claim))
	}
}

// Open tells of too few replicas, and of a user that may not ask for them.
func TestOpenWithReplicas(t *testing.T) {
	t.Parallel()
	master, _ := replicated(t, 1)
	admin := client(t, master.URL())
	rule := append([]string{"reset", "on", ">secret", "~distlock:*", "resetchannels", "&distlock:*"}, aclRule(t, false)...)
	testkit.Must(t, admin.ACLSetUser(t.Context(), "locker", append(rule, "+wait")...).Err())
	for n, want := range []string{"", "", "of 2"} {
		var book logBook
		u := strings.Replace(master.URL(), "redis://", "redis://locker:secret@", 1) + "?wait_replicas=" + strconv.Itoa(n)
		l, err := Open(t.Context(), u, &Options{Options: distlock.Options{Logger: book.logger()}})
		testkit.Must(t, err)
		if !strings.Contains(book.String(), want) || n == 0 && strings.Contains(book.String(), "replicas") {
			t.Errorf("wait_replicas=%d: the log is %q", n, book.String())
		}
		if n == 1 {
			testkit.Must(t, locksSoon(t, l, "x").Unlock(t.Context()))
		}
		testkit.Must(t, l.Close())
	}
	testkit.Must(t, admin.ACLSetUser(t.Context(), "locker", "-wait").Err())
	_, err := Open(t.Context(), strings.Replace(master.URL(), "redis://", "redis://locker:secret@", 1)+"?wait_replicas=1", nil)
	if err == nil || !strings.Contains(err.Error(), "'wait'") || !strings.Contains(err.Error(), page) {
		t.Errorf("Open without the right: %v", err)
	}
}
