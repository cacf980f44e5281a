package chaos_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/fence"
	"github.com/distlock-go/distlock/internal/servers"
)

// gap is what came of locks that a failover has lost.
type gap struct{ rounds, overlaps, refused int }

// unreplicated kills a Redis master, again and again, with a lock that has not reached its
// replica. The documented gap opens: the replica grants the name while the first holder still
// believes. What the lock protects is safe all the same: it refuses each write of the first.
func unreplicated(t *testing.T, rounds int) (seen gap) {
	master := servers.ConfiguredForTest(t, servers.Redis, "repl-diskless-sync-delay 0")
	path, err := netfault.NewTCPProxy(master.Addr(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer path.Close()
	host, port, err := net.SplitHostPort(path.Addr())
	if err != nil {
		t.Fatal(err)
	}
	replica := servers.ConfiguredForTest(t, servers.Redis)
	admin := redis.NewClient(&redis.Options{Addr: replica.Addr()})
	defer admin.Close()

	var account fence.Memory
	for seen.rounds < rounds {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := admin.ReplicaOf(ctx, host, port).Err(); err != nil {
			t.Fatal(err)
		}
		awaitReplica(t, ctx, admin)
		path.Drop(true, true)

		old, err := open(ctx, master.URL(), "")
		if err != nil {
			t.Fatal(err)
		}
		first, err := old.TryLock(ctx, "account", distlock.TTL(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := master.Kill(ctx); err != nil {
			t.Fatal(err)
		}
		if err := admin.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
			t.Fatal(err)
		}
		young, err := open(ctx, replica.URL(), "")
		if err != nil {
			t.Fatal(err)
		}
		second, err := young.TryLock(ctx, "account", distlock.TTL(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if first.Err() == nil && second.Err() == nil {
			seen.overlaps++
		}
		if err := account.Write("account", second.Token()); err != nil {
			t.Errorf("round %d: the write of the second holder: %v", seen.rounds, err)
		}
		if err := account.Write("account", first.Token()); errors.Is(err, fence.ErrStale) {
			seen.refused++
		} else {
			t.Errorf("round %d: the second holder has token %d, the first had %d: its late write was accepted", seen.rounds, second.Token(), first.Token())
		}
		if err := second.Unlock(ctx); err != nil {
			t.Error(err)
		}
		done, stop := context.WithCancel(ctx)
		stop() // its server is dead: nobody waits for it
		_ = first.Unlock(done)
		go old.Close()
		if err := young.Close(); err != nil {
			t.Error(err)
		}
		path.Heal()
		if err := master.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		seen.rounds++
	}
	t.Logf("%+v", seen)
	if seen.overlaps == 0 {
		t.Error("the gap did not open: this test proves nothing")
	}
	return seen
}

func awaitReplica(t *testing.T, ctx context.Context, admin *redis.Client) {
	t.Helper()
	for {
		info, err := admin.InfoMap(ctx, "replication").Result()
		if err == nil && info["Replication"]["master_link_status"] == "up" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the replica does not follow: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
