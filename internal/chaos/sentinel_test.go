package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/internal/chaos"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
)

// downAfter is how long the sentinels wait for a master: not as long as most faults last.
const downAfter = 500 * time.Millisecond

// sentinel is a master, a replica and three sentinels. The faults find out which of the
// two servers is the master when they come.
func sentinel(t *testing.T) deployment {
	settings := []string{"repl-diskless-sync-delay 0", "user follower on >secret ~* &* +@all", "masteruser follower", "masterauth secret"}
	one := servers.ConfiguredForTest(t, servers.Redis, settings...)
	host, port, err := net.SplitHostPort(one.Addr())
	if err != nil {
		t.Fatal(err)
	}
	two := servers.ConfiguredForTest(t, servers.Redis, append(settings, "replicaof "+host+" "+port)...)
	pair := []*servers.Server{one, two}
	var sentinels []string
	for range 3 {
		s := servers.ConfiguredForTest(t, servers.Redis, "sentinel monitor main "+host+" "+port+" 2",
			fmt.Sprint("sentinel down-after-milliseconds main ", downAfter.Milliseconds()), "sentinel failover-timeout main 2000")
		sentinels = append(sentinels, s.Addr())
	}
	roles := &roles{pair: pair, sentinels: sentinels}
	if err := roles.settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	return deployment{
		Store: harness.Store{Servers: pair, Addrs: sentinels, Found: true, URL: func(addrs ...string) string {
			return "redis+sentinel://" + strings.Join(addrs, ",") + "/0?master=main"
		}},
		faults: []chaos.Fault{
			roles.fault("master killed", (*servers.Server).Kill, (*servers.Server).Restart),
			roles.fault("master frozen", (*servers.Server).Pause, (*servers.Server).Resume),
		},
		failover: roles,
	}
}

// roles knows the master of two servers.
type roles struct {
	pair      []*servers.Server
	sentinels []string
	broken    *servers.Server // by the present fault
}

type step func(*servers.Server, context.Context) error

// fault breaks the master; its mending ends when the pair replicates again, or the next
// fault would take the only server that knows anything.
func (r *roles) fault(name string, do, undo step) chaos.Fault {
	return chaos.Fault{
		Name: name,
		Break: func(ctx context.Context) error {
			if err := r.find(ctx); err != nil {
				return err
			}
			return do(r.broken, ctx)
		},
		Mend: func(ctx context.Context) error {
			if err := undo(r.broken, ctx); err != nil {
				return err
			}
			return r.settled(ctx)
		},
	}
}

// find makes the master the server to break.
func (r *roles) find(ctx context.Context) error {
	addr, err := r.master(ctx)
	for _, s := range r.pair {
		if s.Addr() == addr {
			r.broken = s
		}
	}
	return err
}

// Lag implements conformance.Failover: the replica is not let in any more.
func (r *roles) Lag(ctx context.Context) error {
	if err := errors.Join(r.settled(ctx), r.find(ctx)); err != nil {
		return err
	}
	c := redis.NewClient(&redis.Options{Addr: r.broken.Addr()})
	defer c.Close()
	return errors.Join(c.ACLSetUser(ctx, "follower", "off").Err(), c.ClientKillByFilter(ctx, "TYPE", "replica").Err())
}

// Failover implements conformance.Failover. The old master is back when all sentinels know
// the new one, and its replica when they have told it so.
func (r *roles) Failover(ctx context.Context) error {
	if err := r.broken.Kill(ctx); err != nil {
		return err
	}
	err := r.promoted(ctx)
	return errors.Join(err, r.broken.Restart(context.WithoutCancel(ctx))) // also for the checks after a failure
}

// promoted has the sentinels make the replica the master.
func (r *roles) promoted(ctx context.Context) error {
	first := redis.NewSentinelClient(&redis.Options{Addr: r.sentinels[0]})
	defer first.Close()
	if err := first.Failover(ctx, "main").Err(); err != nil {
		return err
	}
	for _, s := range r.sentinels {
		for {
			addr, err := masterBy(ctx, s)
			if err == nil && addr != r.broken.Addr() {
				break
			}
			if err := sleep(ctx); err != nil {
				return errors.Join(errors.New("a sentinel does not know of a new master"), err)
			}
		}
	}
	return nil
}

// waitFor has the sentinels wait for the master for so long.
func (r *roles) waitFor(ctx context.Context, d time.Duration) error {
	var errs []error
	for _, s := range r.sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: s})
		errs = append(errs, c.Set(ctx, "main", "down-after-milliseconds", strconv.FormatInt(d.Milliseconds(), 10)).Err(), c.Close())
	}
	return errors.Join(errs...)
}

func sleep(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(50 * time.Millisecond):
		return nil
	}
}

func (r *roles) master(ctx context.Context) (string, error) { return masterBy(ctx, r.sentinels[0]) }

func masterBy(ctx context.Context, sentinel string) (string, error) {
	c := redis.NewSentinelClient(&redis.Options{Addr: sentinel})
	defer c.Close()
	addr, err := c.GetMasterAddrByName(ctx, "main").Result()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(addr[0], addr[1]), nil
}

// settled waits until the sentinels' master has its replica.
func (r *roles) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		addr, err := r.master(ctx)
		if err == nil {
			c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
			var info string
			info, err = c.Info(ctx, "replication").Result()
			c.Close()
			if err == nil && strings.Contains(info, "role:master") && strings.Contains(info, "state=online") {
				return nil
			}
		}
		if late := sleep(ctx); late != nil {
			return errors.Join(fmt.Errorf("the pair does not replicate again: %w", late), err)
		}
	}
}
