package redislock

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestFailover runs the suite's check over a primary with a replica. Replication is asynchronous,
// so the lock of a holder is lost. The driver declares that this may happen, and is reported with
// that limit. The lock of the tutorials is declared to be safe, and is caught.
func TestFailover(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		driver func(*pair) driver.Driver
		status conformance.Status
		says   []string
	}{
		"PlainSetNX": {
			func(p *pair) driver.Driver { return &setNX{p.client()} },
			conformance.Failed, []string{"had two holders at once"},
		},
		"redislock": {
			func(p *pair) driver.Driver {
				d, err := newStore(p.client(), new(Options).clone(), true)
				if err != nil {
					panic(err) // there is nothing wrong with the options
				}
				return d
			},
			conformance.Skipped, []string{"does not declare", "had two holders at once", "Tokens have risen"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := failing{newPair(t), tc.driver}
			report := conformance.Collect(t, h, &conformance.Options{Artifacts: t.TempDir(),
				Filter: func(k conformance.Check) bool { return k.ID == "fault/failover" }})
			r, _ := report.Result("fault/failover")
			if r.Status != tc.status {
				t.Fatalf("got %s, want %s:\n%s", r.Status, tc.status, r.Text())
			}
			for _, text := range tc.says {
				if !strings.Contains(r.Reason, text) {
					t.Errorf("the reason does not say %q: %s", text, r.Reason)
				}
			}
		})
	}
}

// pair is two servers, and the address under which clients find the one that serves, as a
// sentinel would have it.
type pair struct {
	t  *testing.T
	mu sync.Mutex
	at [2]*servers.Server // first the primary
}

// newPair starts two local servers: one given by URL must not be killed, and one in a
// container does not reach another by a loopback address.
func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t}
	for i := range p.at {
		p.at[i] = servers.ConfiguredForTest(t, servers.Redis)
	}
	testkit.Must(t, p.follow(t.Context()))
	return p
}

func (p *pair) servers() (primary, replica *servers.Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at[0], p.at[1]
}

// client returns a client that finds the primary with every new connection.
func (p *pair) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                  "primary",
		ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			primary, _ := p.servers()
			return new(net.Dialer).DialContext(ctx, network, primary.Addr())
		},
	})
}

// follow makes the second server a replica and waits until it has caught up.
func (p *pair) follow(ctx context.Context) error {
	primary, replica := p.servers()
	c := client(p.t, replica.URL())
	host, port, err := net.SplitHostPort(primary.Addr())
	if err != nil {
		return err
	}
	// The primary need not wait for more replicas to come.
	if err := client(p.t, primary.URL()).ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err(); err != nil {
		return err
	}
	if err := c.ReplicaOf(ctx, host, port).Err(); err != nil {
		return err
	}
	for {
		info, err := c.Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		if strings.Contains(info, "master_link_status:up") {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Lag ends the replication. The replica is a primary from now on. No client asks it.
func (p *pair) Lag(ctx context.Context) error {
	_, replica := p.servers()
	return client(p.t, replica.URL()).ReplicaOf(ctx, "NO", "ONE").Err()
}

// Failover kills the primary and lets clients find the other. The killed one comes
// back as its replica and forgets what it had more.
func (p *pair) Failover(ctx context.Context) error {
	old, next := p.servers()
	if err := old.Kill(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	p.at = [2]*servers.Server{next, old}
	p.mu.Unlock()
	if err := old.Restart(ctx); err != nil {
		return err
	}
	return p.follow(ctx)
}

// failing is the harness over a pair.
type failing struct {
	*pair
	driver func(*pair) driver.Driver
}

var _ conformance.Failover = failing{}

func (h failing) Open(context.Context, *conformance.C) (distlock.Locker, error) {
	return driver.New(h.driver(h.pair), nil)
}

func (h failing) capabilities() driver.Capabilities {
	d := h.driver(h.pair)
	defer func() { _ = d.(interface{ Close() error }).Close() }()
	return d.Capabilities()
}

func (h failing) Caps() conformance.Caps {
	caps := conformance.CapsFrom(h.capabilities())
	caps.Failover = conformance.Yes
	caps.Inspector, caps.Proxy, caps.Process, caps.ServerClock = conformance.No, conformance.No, conformance.No, conformance.No
	caps.Namespaces, caps.Child = conformance.No, conformance.No
	return caps
}

func (h failing) Timing() conformance.Timing { return conformance.TimingFrom(h.capabilities()) }

// setNX is the lock of the tutorials, as good as it gets on one server, and declared to be more.
// It is SET NX PX with a random owner; scripts compare the owner before they touch anything.
type setNX struct{ client *redis.Client }

var (
	setNXTry = redis.NewScript(`
		if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) or redis.call('GET', KEYS[1]) == ARGV[1] then
			redis.call('PEXPIRE', KEYS[1], ARGV[2])
			return redis.call('INCR', KEYS[1] .. ':token')
		end
		return 0`)
	setNXRenew   = redis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`)
	setNXRelease = redis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)
)

func (d *setNX) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "plain SET NX", Durability: driver.Quorum}
}

func (d *setNX) Claim(r driver.Request) driver.Claim { return &setNXClaim{r, d.client, 0} }

func (d *setNX) Renew(ctx context.Context, batch []driver.Renewal) {
	driver.RenewEach(ctx, batch, func(ctx context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		return c.(*setNXClaim).renew(ctx, ttl)
	})
}

func (d *setNX) Close() error { return d.client.Close() }

type setNXClaim struct {
	asked  driver.Request
	client *redis.Client
	token  int64
}

func (c *setNXClaim) run(ctx context.Context, s *redis.Script, ttl time.Duration) (int64, error) {
	return s.Run(ctx, c.client, []string{c.asked.Name}, c.asked.Owner, ttl.Milliseconds()).Int64()
}

func (c *setNXClaim) Try(ctx context.Context) (driver.Grant, error) {
	n, err := c.run(ctx, setNXTry, c.asked.TTL)
	if err == nil && n == 0 {
		err = distlock.ErrHeld
	}
	c.token = n
	return driver.Grant{Token: n, TTL: c.asked.TTL}, err
}

func (c *setNXClaim) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (c *setNXClaim) renew(ctx context.Context, ttl time.Duration) (driver.Grant, error) {
	n, err := c.run(ctx, setNXRenew, ttl)
	if err == nil && n == 0 {
		err = distlock.ErrLost
	}
	return driver.Grant{Token: c.token, TTL: ttl}, err
}

func (c *setNXClaim) Release(ctx context.Context) error {
	n, err := c.run(ctx, setNXRelease, 0)
	if err == nil && n == 0 && c.token > 0 {
		err = distlock.ErrLost
	}
	return err
}
