package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// start runs a redis-server with settings of its own until the test is over.
func start(t *testing.T, settings ...string) (addr string, c *redis.Client) {
	t.Helper()
	s := servers.ConfiguredForTest(t, servers.Redis, settings...)
	return s.Addr(), client(t, s.URL())
}

// startCluster runs n masters that share the slots evenly.
func startCluster(t *testing.T, n int) (addrs []string, nodes []*redis.Client, members []*servers.Server) {
	t.Helper()
	members = servers.ClusterForTest(t, n)
	for _, s := range members {
		addrs, nodes = append(addrs, s.Addr()), append(nodes, client(t, s.URL()))
	}
	return addrs, nodes, members
}

func TestCluster(t *testing.T) {
	t.Parallel()
	addrs, nodes, members := startCluster(t, 3)
	var judges []func()
	for _, c := range nodes {
		judges = append(judges, withRights(t, aclRule(t, true), c))
		// One that hangs in a test is not voted out: then the others would refuse everything.
		testkit.Must(t, c.ConfigSet(t.Context(), "cluster-node-timeout", "600000").Err())
	}
	l, err := Open(t.Context(), "redis://locker:secret@"+strings.Join(addrs, ",")+"?cluster=true", nil)
	testkit.Must(t, err)
	defer l.Close()
	exercise(t, l)
	for _, judge := range judges {
		judge()
	}
	t.Run("Renew", func(t *testing.T) { testClusterRenew(t, addrs, nodes) })
	t.Run("Sweep", func(t *testing.T) { testClusterSweep(t, addrs, nodes) })
	t.Run("Refused", func(t *testing.T) { testClusterRefused(t, addrs) })
	t.Run("RefusedAgain", func(t *testing.T) { testClusterRefusedAgain(t, addrs) })
	t.Run("Move", func(t *testing.T) { testClusterMove(t, addrs, nodes) })
	t.Run("LateAtTheNewMaster", func(t *testing.T) { testClusterLate(t, addrs, nodes) })
	t.Run("OpenSlot", func(t *testing.T) { testClusterOpenSlot(t, addrs, nodes) })
	t.Run("HandOverInAnOpenSlot", func(t *testing.T) { testClusterHandOver(t, addrs, nodes) })
	t.Run("TakenOver", func(t *testing.T) { testClusterTakenOver(t, addrs, nodes, members) })
	t.Run("Frozen", func(t *testing.T) { testClusterFrozen(t, addrs, members) })
	t.Run("Replicas", func(t *testing.T) { testClusterReplicas(t, addrs, nodes) })
	testkit.Must(t, l.Close())
}

func clusterClient(t *testing.T, addrs []string) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Claims of all servers are renewed together, also by servers that have forgotten
// the script, and List finds them.
func testClusterRenew(t *testing.T, addrs []string, nodes []*redis.Client) {
	d := driverOn(t, clusterClient(t, addrs), freshPrefix())
	batch := renewals(t, d, 50)
	releases(t, batch[7].Claim.(*claim))
	for range 2 {
		flush(t, nodes[1])
		d.Renew(t.Context(), batch)
		for i, r := range batch {
			if i == 7 && !errors.Is(r.Err, distlock.ErrLost) || i != 7 && (r.Err != nil || r.Grant.TTL > 2*long || r.Grant.TTL <= long) {
				t.Errorf("claim %d: %+v, %v", i, r.Grant, r.Err)
			}
		}
	}
	if list, err := d.List(t.Context(), "x"); err != nil || len(list) != 49 {
		t.Errorf("List returns %d names, %v, want 49", len(list), err)
	}
}

// A waiter stays one when the slot of its name moves to another server.
func testClusterMove(t *testing.T, addrs []string, nodes []*redis.Client) {
	prefix := freshPrefix()
	d, rival := driverOn(t, clusterClient(t, addrs), prefix), driverOn(t, clusterClient(t, addrs), prefix)
	a, b := rival.claim("x", long), d.claim("x", long)
	g := grants(t, a)
	queues(t, b)

	slot := int(nodes[0].ClusterKeySlot(t.Context(), a.key.entry()).Val())
	from := slot * 3 / 16384
	to := (from + 1) % 3
	moveSlot(t, slot, addrs[to], nodes[from], nodes[to], nodes)

	hears(t, b) // its server has ended the subscription
	testkit.Until(t, "the waiter listens at the new server", func() bool {
		refuses(t, b)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_ = b.Wait(ctx)
		return b.waiter.listens && nodes[to].PubSubShardNumSub(t.Context(), b.waiter.channel).Val()[b.waiter.channel] == 1
	})
	releases(t, a)
	if n := nodes[to].Exists(t.Context(), b.key.entry()).Val(); n != 1 {
		t.Error("the release has not given the name to the waiter")
	}
	hears(t, b)
	if h := grants(t, b); h.Token <= g.Token {
		t.Errorf("the token was %d, and is %d", g.Token, h.Token)
	}
	releases(t, b)
}

// A Try was refused by a server that has given the slot away, and sent again to one that does
// not answer in time: there it may still be carried out.
func testClusterLate(t *testing.T, addrs []string, nodes []*redis.Client) {
	d := driverOn(t, clusterClient(t, addrs), freshPrefix())
	a := d.claim("late", long)
	grants(t, a) // the client knows the slots from now on, and the servers the scripts
	releases(t, a)
	slot := int(nodes[0].ClusterKeySlot(t.Context(), a.key.entry()).Val())
	from := slot * 3 / 16384
	to := (from + 1) % 3
	testkit.Must(t, nodes[to].ScriptLoad(t.Context(), tryScript.Source).Err())
	moveSlot(t, slot, addrs[to], nodes[from], nodes[to], nodes)
	testkit.Must(t, nodes[to].Do(t.Context(), "CLIENT", "PAUSE", time.Hour.Milliseconds(), "WRITE").Err())

	b := d.claim("late", long)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tried := make(chan error, 1)
	go func() { tried <- second(b.Try(ctx)) }()
	testkit.Until(t, "the new master has the request", func() bool {
		return strings.Contains(nodes[to].ClientList(t.Context()).Val(), " flags=b ")
	})
	cancel()
	if err := <-tried; !errors.Is(err, context.Canceled) || !b.ambiguous {
		t.Fatalf("Try: %v, ambiguous %v", err, b.ambiguous)
	}
	testkit.Must(t, nodes[to].ClientUnpause(t.Context()).Err())
	releases(t, b)
	if g, err := b.Try(t.Context()); !errors.Is(err, errReleased) {
		t.Errorf("a Try that arrives after the release: %v, %v, want errReleased", g, err)
	}
}

func nodeID(t *testing.T, c *redis.Client) string {
	t.Helper()
	return c.Do(t.Context(), "CLUSTER", "MYID").Val().(string)
}

// openSlot begins to move a slot: clients look for keys at the other server if its own does not
// have them.
func openSlot(t *testing.T, slot int, from, to *redis.Client) {
	t.Helper()
	testkit.Must(t, to.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "IMPORTING", nodeID(t, from)).Err())
	testkit.Must(t, from.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "MIGRATING", nodeID(t, to)).Err())
}

func moveSlot(t *testing.T, slot int, toAddr string, from, to *redis.Client, nodes []*redis.Client) {
	t.Helper()
	openSlot(t, slot, from, to)
	closeSlot(t, slot, toAddr, from, to, nodes)
}

// moveKeys moves the keys of an open slot.
func moveKeys(t *testing.T, slot int, toAddr string, from *redis.Client) {
	t.Helper()
	ctx := t.Context()
	host, port, err := net.SplitHostPort(toAddr)
	testkit.Must(t, err)
	args := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
	for _, k := range from.ClusterGetKeysInSlot(ctx, slot, 100).Val() {
		args = append(args, k)
	}
	testkit.Must(t, from.Do(ctx, args...).Err())
}

// closeSlot moves the keys, and makes the other server the master of the slot.
func closeSlot(t *testing.T, slot int, toAddr string, from, to *redis.Client, nodes []*redis.Client) {
	t.Helper()
	moveKeys(t, slot, toAddr, from)
	for _, c := range append([]*redis.Client{to, from}, nodes...) {
		testkit.Must(t, c.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", nodeID(t, to)).Err())
	}
}

// Behind an address that looks like one server's there may be several.
func TestRenewBehindAProxyOfACluster(t *testing.T) {
	t.Parallel()
	_, nodes, _ := startCluster(t, 1)
	d := driverOn(t, nodes[0], freshPrefix())
	batch := renewals(t, d, 5)
	for range 2 {
		d.Renew(t.Context(), batch)
		for i, r := range batch {
			if r.Err != nil || r.Grant.TTL <= long {
				t.Errorf("claim %d: %+v, %v", i, r.Grant, r.Err)
			}
		}
	}
	if !d.split.Load() {
		t.Error("the keys were all in one slot: the test is none")
	}
}

// A proxy before several servers that are no cluster sends a script to the server of its first key, which does not know the
// entries of the others.
func TestRenewBehindAShardingProxy(t *testing.T) {
	t.Parallel()
	c := client(t, server(t).URL())
	c.AddHook(firstKeyOnly{})
	d := driverOn(t, c, freshPrefix())
	batch := renewals(t, d, 5)
	releases(t, batch[3].Claim.(*claim))
	for range 2 {
		d.Renew(t.Context(), batch)
		for i, r := range batch {
			if i == 3 && !errors.Is(r.Err, distlock.ErrLost) || i != 3 && (r.Err != nil || r.Grant.TTL <= long) {
				t.Errorf("claim %d: %+v, %v", i, r.Grant, r.Err)
			}
		}
	}
	if !d.split.Load() {
		t.Error("entries are still renewed together")
	}
}

// firstKeyOnly answers a script of several keys as the server of the first one.
type firstKeyOnly struct{}

func (firstKeyOnly) DialHook(next redis.DialHook) redis.DialHook { return next }

func (firstKeyOnly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (firstKeyOnly) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if c, ok := cmd.(interface{ Val() any }); ok && err == nil {
			if lasts, ok := c.Val().([]any); ok && len(lasts) > 1 {
				for i := range lasts[1:] {
					lasts[1+i] = int64(0)
				}
			}
		}
		return err
	}
}

// TestRenewalBesideALostOne: what is asked once more, because it was not found, holds up no other lock of its batch.
func TestRenewalBesideALostOne(t *testing.T) {
	t.Parallel()
	testkit.WithinFresh(t, time.Second, func() func() { // it has two for the one that is asked once more
		c, prefix := client(t, server(t).URL()), freshPrefix()
		asked := make(chan struct{})
		c.AddHook(&loneScript{key: "lost", asked: sync.OnceFunc(func() { close(asked) })})
		l := lockerOn(t, c, &Options{Prefix: prefix, Options: distlock.Options{TTL: 6 * time.Second}})
		var locks []distlock.Lock
		for _, name := range []string{"lost", "other"} {
			lock, err := l.TryLock(t.Context(), name)
			testkit.Must(t, err)
			locks = append(locks, lock)
		}
		testkit.Must(t, distlock.Break(t.Context(), lockerOn(t, client(t, server(t).URL()), &Options{Prefix: prefix}), "lost", 0))
		<-asked
		return func() { testkit.Must(t, locks[1].Unlock(t.Context())) }
	})
}

// loneScript has no answer for a script of one key.
type loneScript struct {
	firstKeyOnly
	key   string
	asked func()
}

func (s *loneScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 3 && fmt.Sprint(args[2]) == "1" && strings.Contains(fmt.Sprint(args[3]), s.key) {
			s.asked()
			<-ctx.Done()
			return ctx.Err()
		}
		return next(ctx, cmd)
	}
}

// A server of a cluster tells a client that does not follow it what is missing, at once.
func TestServerOfACluster(t *testing.T) {
	t.Parallel()
	addrs, nodes, _ := startCluster(t, 2)
	d := driverOn(t, nodes[0], freshPrefix())
	for i, far := 0, false; !far; i++ {
		a := d.tryOnly(fmt.Sprint("x", i), long)
		_, err := a.Try(t.Context())
		if far = err != nil; far && (driver.FateOf(err) != driver.Answered || !strings.Contains(err.Error(), "cluster=true")) {
			t.Errorf("Try: %v (%v)", err, driver.FateOf(err))
		}
	}
	var refusals []string
	for _, addr := range addrs {
		l, err := Open(t.Context(), "redis://"+addr, nil)
		if err == nil {
			testkit.Must(t, l.Close())
		} else {
			refusals = append(refusals, err.Error())
		}
	}
	if len(refusals) != 1 || !strings.Contains(refusals[0], "cluster=true") {
		t.Errorf("Open was refused with %q, want one server that has not the key it asks for", refusals)
	}
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	sentinel := servers.SentinelForTest(t, servers.ConfiguredForTest(t, servers.Redis)).Addr()
	l, err := Open(t.Context(), "redis+sentinel://"+sentinel+"?master=main", nil)
	testkit.Must(t, err)
	defer l.Close()
	exercise(t, l)
	testkit.Must(t, l.Close())

	_, err = Open(t.Context(), "redis+sentinel://"+sentinel+"?master=other", nil)
	if err == nil || errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), `no sentinel that answers knows a master named "other"`) {
		t.Errorf("Open of a master that the sentinels do not know: %v", err)
	}
	if _, err = Open(t.Context(), "redis://"+sentinel, nil); err == nil || !strings.Contains(err.Error(), "is a Sentinel, which keeps no locks") {
		t.Errorf("Open of a Sentinel as if it had locks: %v", err)
	}
	if _, err = Open(t.Context(), "redis+sentinel://"+server(t).Addr()+"?master=main", nil); err == nil || !strings.Contains(err.Error(), "this is no Sentinel") {
		t.Errorf("Open of a Redis as if it were a Sentinel: %v", err)
	}
}
