//go:build unix

package main

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/compare/report"
	"github.com/distlock-go/distlock/internal/servers"
)

// The schemes of the broken locks on Redis, which only the command of these tests
// knows: mutant-blindunlock://host:port, like redis://host:port.
const (
	careless = "mutant-careless" // removes the entry on Unlock, without a look at the holder, and has the server keep half of the lease that its holder is told of
	noExpiry = "mutant-noexpiry" // sets no expiry: a dead holder's entry stays
)

// alone is the scheme of locks in this process, for scripts that need no other: the command refuses mem:// where one is meant.
const alone = "alone"

// mute is the scheme of a store in which every name is held, and which falls silent when it is to break one.
const mute = "mute"

func registerMutants() {
	backends.Default.Register(openAlone, alone)
	backends.Default.Register(openMute, mute)
	for _, scheme := range []string{careless, noExpiry} {
		backends.Default.Register(openMutant, scheme)
	}
}

func openAlone(ctx context.Context, rawURL string, o *distlock.Options) (distlock.Locker, error) {
	return backends.Open(ctx, strings.Replace(rawURL, alone, "mem", 1), func(own *distlock.Options) { *own = *o })
}

func openMute(context.Context, string, *distlock.Options) (distlock.Locker, error) {
	return muteStore{}, nil
}

type muteStore struct {
	distlock.Locker
	distlock.Operator
}

func (muteStore) Close() error { return nil }

func (muteStore) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: mute, MaxTTL: 15 * time.Second}
}

func (muteStore) Inspect(_ context.Context, name string) (distlock.Status, error) {
	return distlock.Status{Name: name, Held: true, Token: 7}, nil
}

func (muteStore) Break(ctx context.Context, name string, _ int64) error {
	if name == "interrupt" { // the user does, now that it is under way
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func openMutant(ctx context.Context, rawURL string, o *distlock.Options) (distlock.Locker, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	d := &mutant{
		Client: redis.NewClient(&redis.Options{Addr: u.Host, ContextTimeoutEnabled: true}),
		flaw:   u.Scheme,
	}
	if err := d.Ping(ctx).Err(); err != nil {
		return nil, err
	}
	return driver.New(d, o)
}

// mutant is a lock as tutorials teach it, and with a flaw. Closing the client, which
// New sees to, closes its connections.
type mutant struct {
	*redis.Client
	flaw string
}

func (m *mutant) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: m.flaw, Durability: driver.Volatile, MinTTL: 100 * time.Millisecond}
}

func (m *mutant) Claim(r driver.Request) driver.Claim { return &mutantClaim{m, r} }

func (m *mutant) Renew(ctx context.Context, batch []driver.Renewal) {
	driver.RenewEach(ctx, batch, func(ctx context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		return c.(*mutantClaim).renew(ctx, ttl)
	})
}

type mutantClaim struct {
	*mutant
	request driver.Request
}

var (
	mutantTry = redis.NewScript(`
		if redis.call("get", KEYS[1]) ~= ARGV[1] and not redis.call("set", KEYS[1], ARGV[1], "nx") then return 0 end
		if ARGV[2] ~= "0" then redis.call("pexpire", KEYS[1], ARGV[2]) end
		return redis.call("incr", KEYS[1] .. ":token")`)
	mutantRenew = redis.NewScript(`
		if redis.call("get", KEYS[1]) ~= ARGV[1] then return 0 end
		if ARGV[2] ~= "0" then redis.call("pexpire", KEYS[1], ARGV[2]) end
		return 1`)
	mutantRelease = redis.NewScript(`
		if redis.call("get", KEYS[1]) ~= ARGV[1] then return 0 end
		return redis.call("del", KEYS[1])`)
)

func (c *mutantClaim) key() string { return c.flaw + ":" + c.request.Name }

// expiry is what the server is told, in milliseconds; 0 is none.
func (c *mutantClaim) expiry(ttl time.Duration) int64 {
	switch c.flaw {
	case noExpiry:
		return 0
	case careless:
		return ttl.Milliseconds() / 2
	}
	return ttl.Milliseconds()
}

func (c *mutantClaim) Try(ctx context.Context) (driver.Grant, error) {
	token, err := mutantTry.Run(ctx, c.Client, []string{c.key()}, c.request.Owner, c.expiry(c.request.TTL)).Int64()
	switch {
	case err != nil:
		return driver.Grant{}, err
	case token == 0:
		return driver.Grant{}, &distlock.HeldError{}
	}
	return driver.Grant{Token: token, TTL: c.request.TTL}, nil
}

func (c *mutantClaim) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (c *mutantClaim) renew(ctx context.Context, ttl time.Duration) (driver.Grant, error) {
	ok, err := mutantRenew.Run(ctx, c.Client, []string{c.key()}, c.request.Owner, c.expiry(ttl)).Int()
	if err == nil && ok == 0 {
		err = distlock.ErrLost
	}
	return driver.Grant{TTL: ttl}, err
}

func (c *mutantClaim) Release(ctx context.Context) error {
	if c.flaw == careless {
		return c.Del(ctx, c.key()).Err()
	}
	_, err := mutantRelease.Run(ctx, c.Client, []string{c.key()}, c.request.Owner).Int()
	return err
}

// TestCompareConvicts runs the command on a sound lock or on a broken one, by chance: the report must tell which it
// is. What it tells of each flaw is tested in internal/compare/hazard.
func TestCompareConvicts(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(sharedURL(t, servers.Redis))
	if err != nil {
		t.Fatal(err)
	}
	flaws := map[string][]report.Hazard{
		careless: {report.DoubleGrants, report.StalledHolder, report.CutOffHolder},
		noExpiry: {report.KilledHolder, report.StalledHolder},
	}
	for _, scheme := range servers.Sample(1, careless, noExpiry, "redis") {
		bad := flaws[scheme]
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			own := *u
			own.Scheme = scheme
			safety := compareSafety(t, own.String())
			for _, h := range bad {
				if o := safety[h]; o.Verdict != report.Bad {
					t.Errorf("%s of %s: %s, %q (%s), want bad", h, scheme, o.Verdict, o.Text, o.Detail)
				}
			}
			if o := safety[report.ServerRestart]; !strings.Contains(o.Text, "no control of the server") {
				t.Errorf("a server that was given by URL: %+v", o)
			}
			if len(bad) > 0 {
				return
			}
			for h, o := range safety {
				if o.Verdict == report.Bad {
					t.Errorf("%s of a sound lock: %q (%s)", h, o.Text, o.Detail)
				}
			}
		})
	}
}

// compareSafety runs the command on a URL and returns what it says of its safety.
func compareSafety(t *testing.T, rawURL string) map[report.Hazard]report.Outcome {
	t.Helper()
	file := t.TempDir() + "/report.json"
	cmd := exec.CommandContext(t.Context(), "distlock", "compare", "--duration", "50ms", "--rounds", "1", "--workloads", "hot", "--json", file, rawURL)
	// A broken lock may make workloads fail, too, and with them the command.
	out, runErr := cmd.CombinedOutput()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (%v): %s", err, runErr, out)
	}
	var r report.Report
	if err := json.Unmarshal(text, &r); err != nil || len(r.Backends) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	for h, o := range r.Backends[0].Safety {
		t.Logf("%s: %s: %s (%s)", h, o.Verdict, o.Text, o.Detail)
	}
	return r.Backends[0].Safety
}
