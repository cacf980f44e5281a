package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
)

// start runs a redis-server with settings that internal/servers does not offer, on a
// free port, until the test is over.
func start(t *testing.T, settings ...string) (addr string, c *redis.Client) {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("DISTLOCK_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip("redis-server is not installed")
	}
	// The ports are free when they are asked for, not for certain when they are used.
	for range 5 {
		port, bus, dir := freePort(t), freePort(t), t.TempDir()
		file := filepath.Join(dir, "redis.conf")
		text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsave \"\"\nlogfile log\n%s\n", port, dir, strings.Join(settings, "\n"))
		must(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "BUS", strconv.Itoa(bus))), 0o600))
		args := []string{file}
		if strings.Contains(text, "sentinel monitor") {
			args = append(args, "--sentinel")
		}
		cmd := exec.Command(path, args...)
		must(t, cmd.Start())
		exited := make(chan struct{})
		go func() { _ = cmd.Wait(); close(exited) }()
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-exited })
		addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		c = client(t, "redis://"+addr)
		if answers(t, c, exited) {
			return addr, c
		}
	}
	t.Fatal("redis-server does not start")
	return "", nil
}

func answers(t *testing.T, c *redis.Client, exited <-chan struct{}) bool {
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		select {
		case <-exited:
			return false
		default:
		}
		if c.Ping(t.Context()).Err() == nil {
			return true
		}
	}
	return false
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startCluster runs n masters that share the slots evenly.
func startCluster(t *testing.T, n int) (addrs []string, nodes []*redis.Client) {
	t.Helper()
	const slots = 16384
	for i := range n {
		addr, c := start(t, "cluster-enabled yes", "cluster-port BUS", "cluster-node-timeout 2000")
		addrs, nodes = append(addrs, addr), append(nodes, c)
		must(t, c.Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		must(t, c.ClusterAddSlotsRange(t.Context(), i*slots/n, (i+1)*slots/n-1).Err())
	}
	for _, c := range nodes[1:] {
		host, port, err := net.SplitHostPort(addrs[0])
		must(t, err)
		bus := strings.TrimSpace(nodes[0].ConfigGet(t.Context(), "cluster-port").Val()["cluster-port"])
		must(t, c.Do(t.Context(), "CLUSTER", "MEET", host, port, bus).Err())
	}
	eventually(t, "the cluster is complete", func() bool {
		for _, c := range nodes {
			info := c.ClusterInfo(t.Context()).Val()
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(n)) {
				return false
			}
		}
		return true
	})
	return addrs, nodes
}

func TestCluster(t *testing.T) {
	addrs, nodes := startCluster(t, 3)
	rule := append([]string{"reset", "on", ">secret", "~distlock:*", "&distlock:*"}, aclRule(t, true)...)
	for _, c := range nodes {
		must(t, c.ACLSetUser(t.Context(), "locker", rule...).Err())
	}
	l, err := Open(t.Context(), "redis://locker:secret@"+strings.Join(addrs, ",")+"?cluster=true&ttl=600ms", nil)
	must(t, err)
	defer l.Close()
	exercise(t, l)
	for _, c := range nodes {
		for _, e := range c.ACLLog(t.Context(), 100).Val() {
			if e.Object != "config|get" {
				t.Errorf("denied to %s: %s %s", e.Username, e.Reason, e.Object)
			}
		}
	}
	t.Run("Renew", func(t *testing.T) { testClusterRenew(t, addrs, nodes) })
	t.Run("Move", func(t *testing.T) { testClusterMove(t, addrs, nodes) })
	must(t, l.Close())
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
		d.RenewBatch(t.Context(), batch)
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
	a, b := rival.bid("x", long), d.bid("x", long)
	g := grants(t, a)
	queues(t, b)

	slot := int(nodes[0].ClusterKeySlot(t.Context(), a.key.entry()).Val())
	from := slot * 3 / 16384
	to := (from + 1) % 3
	moveSlot(t, slot, addrs[to], nodes[from], nodes[to], nodes)

	hears(t, b, true) // its server has ended the subscription
	eventually(t, "the waiter listens at the new server", func() bool {
		refuses(t, b)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_ = b.Wait(ctx)
		return b.listens && nodes[to].PubSubShardNumSub(t.Context(), b.channel).Val()[b.channel] == 1
	})
	releases(t, a)
	if n := nodes[to].Exists(t.Context(), b.key.entry()).Val(); n != 1 {
		t.Error("the release has not given the name to the waiter")
	}
	hears(t, b, true)
	if h := grants(t, b); h.Token <= g.Token {
		t.Errorf("the token was %d, and is %d", g.Token, h.Token)
	}
	releases(t, b)
}

func moveSlot(t *testing.T, slot int, toAddr string, from, to *redis.Client, nodes []*redis.Client) {
	t.Helper()
	ctx := t.Context()
	id := func(c *redis.Client) string { return c.Do(ctx, "CLUSTER", "MYID").Val().(string) }
	must(t, to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(from)).Err())
	must(t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(to)).Err())
	host, port, err := net.SplitHostPort(toAddr)
	must(t, err)
	args := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
	for _, k := range from.ClusterGetKeysInSlot(ctx, slot, 100).Val() {
		args = append(args, k)
	}
	must(t, from.Do(ctx, args...).Err())
	for _, c := range append([]*redis.Client{to, from}, nodes...) {
		must(t, c.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", id(to)).Err())
	}
}

// Behind an address that looks like one server's there may be several.
func TestRenewBehindAProxyOfACluster(t *testing.T) {
	_, nodes := startCluster(t, 1)
	d := driverOn(t, nodes[0], freshPrefix())
	batch := renewals(t, d, 5)
	for range 2 {
		d.RenewBatch(t.Context(), batch)
		for i, r := range batch {
			if r.Err != nil || r.Grant.TTL <= long {
				t.Errorf("claim %d: %+v, %v", i, r.Grant, r.Err)
			}
		}
	}
	if !d.apart.Load() {
		t.Error("the keys were all in one slot: the test is none")
	}
}

func TestSentinel(t *testing.T) {
	addr, _ := start(t)
	host, port, err := net.SplitHostPort(addr)
	must(t, err)
	sentinel, _ := start(t, fmt.Sprintf("sentinel monitor main %s %s 1", host, port))
	l, err := Open(t.Context(), "redis+sentinel://"+sentinel+"?master=main&ttl=600ms", nil)
	must(t, err)
	defer l.Close()
	exercise(t, l)
	must(t, l.Close())

	_, err = Open(t.Context(), "redis+sentinel://"+sentinel+"?master=other", nil)
	if err == nil || errors.Is(err, distlock.ErrInvalid) {
		t.Errorf("Open of a master that the sentinels do not know: %v", err)
	}
}
