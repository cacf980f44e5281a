package servers

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestConfigured(t *testing.T) {
	t.Parallel()
	for kind, setting := range map[Kind]string{Redis: "maxclients 321", MySQL: "max-connections=321"} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := ConfiguredForTest(t, kind, setting)
			within(t, s, func(ctx context.Context, p peer) error {
				got := ""
				var err error
				switch p := p.(type) {
				case redisClient:
					got = p.ConfigGet(ctx, "maxclients").Val()["maxclients"]
				case mysqlClient:
					err = p.QueryRowContext(ctx, "SELECT @@max_connections").Scan(&got)
				}
				if got != "321" {
					t.Errorf("the setting is %q, want 321", got)
				}
				return err
			})
			must(t, s.Close())
			wantClosed(t, s.Addr())
		})
	}
	for _, kind := range []Kind{ZooKeeper, Etcd} {
		if _, err := StartConfigured(t.Context(), kind, "x"); err == nil || !strings.Contains(err.Error(), "allowed are redis, mysql and pg") {
			t.Errorf("settings of %s: %v", kind, err)
		}
	}
}

// A sentinel knows its master, each member of a cluster knows all the others, and
// nothing of either is left.
func TestSentinelAndCluster(t *testing.T) {
	t.Parallel()
	var addrs []string
	t.Run("started", func(t *testing.T) {
		master := ConfiguredForTest(t, Redis)
		sentinel := SentinelForTest(t, master)
		c := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr()})
		defer c.Close()
		found, err := c.GetMasterAddrByName(t.Context(), "main").Result()
		if err != nil || net.JoinHostPort(found[0], found[1]) != master.Addr() {
			t.Errorf("the sentinel knows %v, %v, want %s", found, err, master.Addr())
		}
		addrs = append(addrs, master.Addr(), sentinel.Addr())

		var members []string
		for _, s := range ClusterForTest(t, 3) {
			members = append(members, s.Addr())
		}
		all := redis.NewClusterClient(&redis.ClusterOptions{Addrs: members[:1]})
		defer all.Close()
		for _, key := range []string{"a", "b", "c"} { // in slots of three members
			must(t, all.Set(t.Context(), key, "x", 0).Err())
		}
		addrs = append(addrs, members...)
	})
	for _, addr := range addrs {
		wantClosed(t, addr)
	}
}
