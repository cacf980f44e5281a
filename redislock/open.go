package redislock

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
)

// schemes are what Open understands.
var schemes = []string{"redis", "rediss", "redis+sentinel"}

// Bounds of the time-out of a request, where the URL does not name one.
const (
	minRequestTimeout = 250 * time.Millisecond // a slow round trip; contexts bound calls of shorter leases
	maxRequestTimeout = 3 * time.Second
)

// Open returns a Locker on a client of its own, which is closed with it:
//
//	redis://[user:password@]host[:port][/db]              a server; rediss:// for TLS
//	redis://host1,host2?cluster=true                      a cluster, by some of its servers
//	redis+sentinel://sentinel1,sentinel2[/db]?master=name what these sentinels call name
//
// Parameters: ttl, holder, prefix, token_memory, dial_timeout, request_timeout,
// pool_size, cluster, master, sentinel_auth (the sentinels want the user and password
// as well), and those of TLS: tls, tls_ca, tls_cert, tls_key, tls_server_name.
//
// It connects, so that an unreachable server is an error here, and warns the Logger
// of a server that may evict locks. ctx bounds the call only. It fails with
// distlock.ErrInvalid if the URL or the options are not allowed. No error shows the
// password.
func Open(ctx context.Context, rawURL string, o *Options) (*Locker, error) {
	u, err := openurl.Parse(rawURL, schemes...)
	if err != nil {
		return nil, opened(err)
	}
	var opts Options
	if o != nil {
		opts = *o
	}
	config, err := configure(u, &opts)
	if err != nil {
		return nil, opened(err)
	}
	client := redis.NewUniversalClient(config)
	locker, err := newLocker(client, &opts, true)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	if err := check(ctx, client, opts.Logger); err != nil {
		_ = locker.Close()
		return nil, opened(fmt.Errorf("%s: %w", u, err))
	}
	return locker, nil
}

func opened(err error) error { return fmt.Errorf("distlock: open redis: %w", err) }

// configure returns the options of the client that u describes, and completes o.
func configure(u *openurl.URL, o *Options) (*redis.UniversalOptions, error) {
	u.Common(&o.Options)
	prefix := u.Text("prefix", cmp.Or(o.Prefix, defaultPrefix))
	memory := u.Duration("token_memory", cmp.Or(o.TokenMemory, defaultTokenMemory), time.Millisecond, distlock.MaxTTL)
	// Well below the renewal period, so that a renewal that hangs leaves time for
	// another, on another connection.
	ttl := cmp.Or(o.TTL, distlock.DefaultTTL)
	timeout := u.Duration("request_timeout",
		max(min(ttl/6, maxRequestTimeout), minRequestTimeout), time.Millisecond, max(ttl/3, minRequestTimeout))
	c := &redis.UniversalOptions{
		DialTimeout:   u.Duration("dial_timeout", 5*time.Second, time.Millisecond, time.Minute),
		ReadTimeout:   timeout,
		WriteTimeout:  timeout,
		PoolSize:      u.Int("pool_size", 0, 0, 10000),
		IsClusterMode: u.Bool("cluster", false),
		MasterName:    u.Text("master", ""),
		TLSConfig:     u.TLS(),

		ContextTimeoutEnabled: true,
		// Each request is tried up to four times anyway; a dead server should be
		// an error soon.
		DialerRetries: 1,
		// What a connection would tell and ask at its start needs rights that a
		// lock does not.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	c.Username, c.Password, _ = u.User()
	if u.Bool("sentinel_auth", false) {
		c.SentinelUsername, c.SentinelPassword = c.Username, c.Password
	}
	if c.MasterName == "" {
		c.Addrs = u.HostsDefault("6379")
	} else {
		c.Addrs = u.HostsDefault("26379")
	}
	if err := u.Err(); err != nil {
		return nil, err
	}
	reason := checkTopology(u, c)
	switch {
	case reason != "":
	case prefix == "", o.Prefix != "" && prefix != o.Prefix:
		reason = fmt.Sprintf("has the prefix %q, the options have %q", prefix, o.Prefix)
	case o.TokenMemory != 0 && memory != o.TokenMemory:
		reason = fmt.Sprintf("has the token_memory %v, the options have %v", memory, o.TokenMemory)
	}
	if reason != "" {
		return nil, fmt.Errorf("%w: the URL %s %s", distlock.ErrInvalid, u, reason)
	}
	o.Prefix, o.TokenMemory = prefix, memory
	return c, nil
}

// checkTopology takes the database from the path, and returns what is wrong with u:
// the rest of a sentence that begins with it, or "".
func checkTopology(u *openurl.URL, c *redis.UniversalOptions) string {
	var err error
	if path := strings.TrimPrefix(u.Path(), "/"); path != "" {
		c.DB, err = strconv.Atoi(path)
	}
	switch {
	case err != nil || c.DB < 0:
		return fmt.Sprintf("has the path %q, allowed is the number of a database", u.Path())
	case u.Scheme() == "redis+sentinel" && c.MasterName == "":
		return "needs the parameter master"
	case c.IsClusterMode && c.MasterName != "":
		return "has both master and cluster=true"
	case c.IsClusterMode && c.DB != 0:
		return "names a database, which a cluster does not have"
	case len(c.Addrs) > 1 && !c.IsClusterMode && c.MasterName == "":
		return "lists several hosts and needs cluster=true, or master=name if they are sentinels"
	}
	return ""
}

// check asks every master for a sign of life, and whether it evicts keys.
func check(ctx context.Context, client redis.UniversalClient, logger *slog.Logger) error {
	return fault(ctx, eachMaster(ctx, client, func(ctx context.Context, master redis.Cmdable) error {
		if err := master.Ping(ctx).Err(); err != nil {
			return err
		}
		const setting = "maxmemory-policy"
		// Many servers do not let everybody read their settings.
		policy := master.ConfigGet(ctx, setting).Val()[setting]
		if logger != nil && policy != "" && policy != "noeviction" {
			logger.Warn("this Redis may evict locks when its memory is full: set maxmemory-policy to noeviction",
				setting, policy)
		}
		return nil
	}))
}
