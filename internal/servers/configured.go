package servers

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// SparePort in a setting stands for another free port of the server, each time for another one.
const SparePort = "{{spare-port}}"

// StartConfigured is [Start] for a local process with settings of its own: lines of the configuration file of Redis,
// MySQL or Postgres. A Redis so started writes nothing to disk unless they say so: a kill takes its data. A line "sentinel
// monitor …" makes it a sentinel. The error is [ErrUnavailable] where the server is not installed.
func StartConfigured(ctx context.Context, kind Kind, settings ...string) (*Server, error) {
	r := recipes[kind]
	switch local := r.local; kind {
	case Redis:
		r.local = func(_ context.Context, at site) (launch, error) { return configuredRedis(at, settings) }
	case MySQL, Postgres:
		r.local = func(ctx context.Context, at site) (launch, error) {
			run, err := local(ctx, at)
			for _, line := range settings {
				run.args = append(run.args, "--"+line)
			}
			return run, err
		}
	default:
		return nil, fmt.Errorf("servers: a %s server takes no settings here: allowed are %s, %s and %s", kind, Redis, MySQL, Postgres)
	}
	sweepOnce.Do(func() { sweep(ctx) })
	s, err := r.startLocal(ctx)
	if err != nil {
		return nil, startError(ctx, kind, nil, err)
	}
	return s, nil
}

// configuredRedis has its settings in a file, because a sentinel writes to it what it learns.
func configuredRedis(at site, settings []string) (launch, error) {
	path, ok := findProgram("redis-server")
	if !ok {
		return launch{}, unavailable{"redis-server is not installed"}
	}
	lines := append([]string{"port " + strconv.Itoa(at.port), "bind 127.0.0.1", `dir "` + at.dir + `"`, `save ""`}, settings...)
	text := strings.Join(lines, "\n") + "\n"
	for strings.Contains(text, SparePort) {
		// The port is free now, not for certain when it is used: then startLocal starts over.
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return launch{}, err
		}
		defer l.Close() // held until all are chosen, or they might be the same
		text = strings.Replace(text, SparePort, strconv.Itoa(l.Addr().(*net.TCPAddr).Port), 1)
	}
	run := launch{name: "redis-server", path: path, args: []string{filepath.Join(at.dir, "redis.conf")}}
	if slices.ContainsFunc(settings, func(line string) bool { return strings.HasPrefix(line, "sentinel ") }) {
		run.name, run.args = "redis-sentinel", append(run.args, "--sentinel")
	}
	return run, os.WriteFile(run.args[0], []byte(text), 0o600)
}

// ConfiguredForTest is [ForTest] with [StartConfigured].
func ConfiguredForTest(t testing.TB, kind Kind, settings ...string) *Server {
	t.Helper()
	return forTest(t, kind, func(ctx context.Context, kind Kind) (*Server, error) {
		return StartConfigured(ctx, kind, settings...)
	})
}

// SentinelForTest starts a sentinel that watches a Redis server under the name "main".
func SentinelForTest(t testing.TB, master *Server) *Server {
	t.Helper()
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return ConfiguredForTest(t, Redis, fmt.Sprintf("sentinel monitor main %s %s 1", host, port))
}

// ClusterForTest starts a Redis Cluster of n masters. They share the slots evenly. While one of them is away, the others
// go on, as docs/redis.md advises: by default, they would refuse all names for the sake of those that it alone decides of.
func ClusterForTest(t testing.TB, n int) []*Server {
	t.Helper()
	var nodes []*Server
	for range n {
		nodes = append(nodes, ConfiguredForTest(t, Redis, "cluster-enabled yes", "cluster-port "+SparePort,
			"cluster-node-timeout 2000", "cluster-require-full-coverage no", "enable-debug-command yes"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), readyBound)
	defer cancel()
	if err := joinCluster(ctx, nodes); err != nil {
		t.Fatal(err)
	}
	return nodes
}

const slots = 16384 // of every Redis Cluster

// joinCluster gives each node its part of the slots and returns when all of them know all.
func joinCluster(ctx context.Context, nodes []*Server) error {
	var first, bus string
	for i, s := range nodes {
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true})
		defer c.Close()
		if err := c.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
		if err := c.ClusterAddSlotsRange(ctx, i*slots/len(nodes), (i+1)*slots/len(nodes)-1).Err(); err != nil {
			return err
		}
		if i == 0 {
			port, err := c.ConfigGet(ctx, "cluster-port").Result()
			if err != nil {
				return err
			}
			first, bus = s.Addr(), port["cluster-port"]
			continue
		}
		host, port, err := net.SplitHostPort(first)
		if err != nil {
			return err
		}
		if err := c.Do(ctx, "CLUSTER", "MEET", host, port, bus).Err(); err != nil {
			return err
		}
	}
	for _, s := range nodes {
		if err := awaitCluster(ctx, s, len(nodes)); err != nil {
			return err
		}
	}
	return nil
}

// awaitCluster returns when a node finds the cluster of n nodes complete: it says "ok" also while it does not know of
// all slots.
func awaitCluster(ctx context.Context, s *Server, n int) error {
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true})
	defer c.Close()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		info, err := c.ClusterInfo(ctx).Result()
		if err == nil && strings.Contains(info, "cluster_state:ok") &&
			strings.Contains(info, fmt.Sprintf("cluster_slots_assigned:%d\r", slots)) &&
			strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", n)) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("servers: the cluster is not complete: %w: %s", ctx.Err(), info)
		}
	}
}
