package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
)

// schemes are what Open understands.
var schemes = []string{"redis", "rediss", "redis+sentinel"}

// maxRequestTimeout bounds the timeout of a request where the URL does not name one.
const maxRequestTimeout = 3 * time.Second

// Open returns a Locker on a client of its own. Closing the Locker closes the client. rawURL is
// one of:
//
//	redis://[user:password@]host[:port][/db]              a server; rediss:// for TLS
//	redis://host1,host2?cluster=true                      a cluster, by some of its servers
//	redis+sentinel://sentinel1,sentinel2[/db]?master=name what these sentinels call name
//
// Parameters: ttl, holder, token_base, prefix, token_memory, wait_replicas, dial_timeout, request_timeout,
// pool_size, cluster, master, sentinel_auth (the sentinels want the user and password
// as well), and those of TLS: tls, tls_ca, tls_cert, tls_key, tls_server_name.
//
// It connects, and asks each server, in one request, to do once what the driver needs. So a
// server that cannot be reached, is no master, lacks a command or refuses a right is an error
// here. The Logger is told if a server may evict locks, does not say whether it may, lets no
// script publish, or has fewer replicas than wait_replicas. ctx bounds the call only. It fails with distlock.ErrInvalid if the URL or the
// options are not allowed. No error shows the password.
//
// Before that error, and in an outage, go-redis writes each failed dial to standard error. That is set for the whole process, and
// so by the program: redis.SetLogger(&logging.VoidLogger{}), of package github.com/redis/go-redis/v9/logging, keeps it quiet.
func Open(ctx context.Context, rawURL string, o *Options) (_ *Locker, err error) {
	defer func() { err = openurl.Named(rawURL, err) }()
	u, err := openurl.Parse(rawURL, schemes...)
	if err != nil {
		return nil, opened(err)
	}
	opts := o.clone()
	config, err := configure(u, opts)
	if err != nil {
		return nil, opened(err)
	}
	client := redis.NewUniversalClient(config)
	d, err := newStore(client, opts, true)
	if err != nil {
		_ = client.Close()
		return nil, opened(err)
	}
	if single, ok := client.(*redis.Client); ok && config.MasterName == "" {
		// Not behind Sentinel: there, go-redis closes the connections to an old master,
		// and knows only those of the client itself.
		d.sender.SendDirectly(single.Options())
	}
	locker, err := newLocker(d, opts)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	// The probe comes last, so that wrong options fail before a server is asked.
	if err := d.probe(ctx, opts.Logger); err != nil {
		_ = locker.Close()
		return nil, opened(ofSentinel(endpoint.Explain(err), config.MasterName))
	}
	return locker, nil
}

// ofSentinel adds the likely cause to an error of go-redis about the answers of Sentinels.
func ofSentinel(err error, master string) error {
	switch {
	case master == "":
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("no sentinel that answers knows a master named %q: %w", master, err)
	case strings.Contains(strings.ToLower(err.Error()), "unknown command 'sentinel'"):
		return fmt.Errorf("this is no Sentinel, which listens on port 26379: %w", err)
	}
	return err
}

func opened(err error) error { return &distlock.Error{Op: "open redis", Err: err} }

// configure returns the options of the client that u describes, and completes o. What u and o
// contradict each other about is an error of Merge and Common.
func configure(u *openurl.URL, o *Options) (*redis.UniversalOptions, error) {
	u.Common(&o.Options)
	openurl.Merge(u, "prefix", u.Text("prefix", defaultPrefix), &o.Prefix)
	openurl.Merge(u, "token_memory",
		u.Duration("token_memory", defaultTokenMemory, time.Millisecond, distlock.MaxTTL), &o.TokenMemory)
	openurl.Merge(u, "wait_replicas", u.Int("wait_replicas", 0, 0, maxReplicas), &o.WaitReplicas)
	// Well below the renewal period, so that a renewal that hangs leaves time for
	// another, on another connection.
	c := endpoint.Options(u, o.TTL, 6, maxRequestTimeout)
	c.PoolSize = u.Int("pool_size", 0, 0, 10000)
	c.IsClusterMode, c.MasterName = u.Bool("cluster", false), u.Text("master", "")
	if c.IsClusterMode {
		// For renewals, which would wait for the pool behind any number of other requests: each of them goes alone.
		c.PipelinePoolSize, c.PipelineReadBufferSize, c.PipelineWriteBufferSize = 2, c.ReadBufferSize, c.WriteBufferSize
	}
	if u.Bool("sentinel_auth", false) {
		c.SentinelUsername, c.SentinelPassword = c.Username, c.Password
	}
	port := "6379"
	if c.MasterName != "" {
		port = "26379"
	}
	c.Addrs = u.HostsDefault(port)
	if err := u.Err(); err != nil {
		return nil, err
	}
	if reason := checkTopology(u, c); reason != "" {
		return nil, fmt.Errorf("%w: the URL %s %s", distlock.ErrInvalid, u, reason)
	}
	return c, nil
}

// checkTopology takes the database from the path, and returns what is wrong with u:
// the rest of a sentence that begins with it, or "".
func checkTopology(u *openurl.URL, c *redis.UniversalOptions) string {
	var reason string
	c.DB, reason = endpoint.Database(u.Path())
	reason = cmp.Or(reason, endpoint.CheckLogin(c.Username, c.Password))
	switch {
	case reason != "":
		return reason
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

// maxProbe is for how long Open asks a server that cannot yet, and maxProbePause the longest pause.
const (
	maxProbe      = 10 * time.Second
	maxProbePause = 200 * time.Millisecond
)

// page is where the errors of Open send the reader.
const page = "https://github.com/distlock-go/distlock/blob/main/docs/redis.md says what a Locker needs"

// probe asks every master, in one request, whether it can do what the driver will ask for.
// What makes locks impossible is an error, what makes them worse goes to logger. It asks
// again where the answer is that the server cannot yet.
func (d *store) probe(ctx context.Context, logger *slog.Logger) error {
	pause := driver.Retry{Most: maxProbePause}
	ends := time.Now().Add(maxProbe)
	for said := error(nil); ; {
		// Detached, because go-redis waits for a silent server also after ctx was cancelled.
		_, err := driver.Detach(ctx, func() (any, error) {
			return nil, d.eachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
				key, ok := d.keyAt(ctx, master)
				if !ok {
					return master.Ping(ctx).Err() // it has no slot yet, or hardly any
				}
				return d.probeMaster(ctx, master, key, logger)
			})
		})
		err = endpoint.Fault(ctx, err)
		if said != nil && errors.Is(err, context.DeadlineExceeded) {
			return said // what a deadline cuts off says nothing
		}
		fate := driver.FateOf(err)
		cannotYet := (fate == driver.NotNow || fate == driver.Again) && !redis.IsReadOnlyError(err)
		if !cannotYet || time.Now().After(ends) || pause.Pause(ctx) != nil {
			return err
		}
		said = err
	}
}

// keyAt returns a key that belongs to master. No name has it: names are not empty.
func (d *store) keyAt(ctx context.Context, master *redis.Client) (key string, ok bool) {
	for i := range 4096 {
		key := fmt.Sprintf("%s{}:probe:%d", d.prefix, i) // an empty hash tag is none
		if d.cluster == nil {
			return key, true
		}
		m, err := d.cluster.MasterForKey(ctx, key)
		if err == nil && m.Options().Addr == master.Options().Addr {
			return key, true
		}
	}
	return "", false
}

func (d *store) probeMaster(ctx context.Context, master *redis.Client, key string, logger *slog.Logger) error {
	channel := key // in the slot of the key
	// EVALSHA as well, though it is not known yet: the user may lack that right alone.
	pipe := master.Pipeline()
	ping := pipe.Ping(ctx)
	known := pipe.EvalSha(ctx, probeScript.Digest, []string{key}, d.publish, channel)
	ran := pipe.Eval(ctx, probeScript.Source, []string{key}, d.publish, channel)
	acks := d.replicas.ask(ctx, pipe, maxReplicaWait)
	asking := redis.NewCmd(ctx, "asking") // go-redis needs it while a slot is moved
	if d.cluster != nil {
		_ = pipe.Process(ctx, asking) // before another command, as it is for the one that follows
	}
	policy := pipe.ConfigGet(ctx, endpoint.EvictionPolicy)
	role := pipe.Do(ctx, "role")
	_, err := pipe.Exec(ctx)
	if err != nil && !endpoint.Answered(err) {
		return err
	}
	if said, _ := role.Slice(); len(said) > 0 && said[0] == "sentinel" {
		return errors.New("the server is a Sentinel, which keeps no locks: ask it for a master, by redis+sentinel://HOST:PORT?master=NAME")
	}
	for _, err := range []error{ping.Err(), known.Err(), ran.Err(), asking.Err()} {
		switch {
		case err == nil, redis.HasErrorPrefix(err, "NOSCRIPT"):
		case endpoint.Moved(err) && d.cluster != nil:
			return nil // the slot has just moved: that server has been asked as well, or will tell
		case endpoint.Moved(err):
			return fmt.Errorf("%w (%s)", endpoint.NeedsCluster(err), page)
		case endpoint.FateOf(err) == driver.NotNow:
			return err
		case redis.HasErrorPrefix(err, "NOAUTH"):
			return fmt.Errorf("%w (the URL has none: redis://:PASSWORD@host, or redis://USER:PASSWORD@host)", err)
		default:
			return fmt.Errorf("%w (%s)", err, page)
		}
	}
	if ran.Val() == nil {
		return err // of the connection: go-redis takes that for the answer to one of them
	}
	if err := judge(ran.Val(), logger); err != nil {
		return err
	}
	// One that takes no writes has said so to the script. If the user may not ask, this is not known.
	if said, _ := role.Slice(); len(said) > 0 && said[0] == "slave" {
		return fmt.Errorf("the server is a replica that takes writes (replica-read-only no): its master knows nothing of its locks (%s)", page)
	}
	if err := d.replicas.judge(acks); errors.Is(err, errUnreplicated) {
		logger.Warn("this Redis has too few replicas: no lock is granted until it has more", "err", err)
	} else if err != nil {
		return fmt.Errorf("%w (%s)", err, page)
	}
	endpoint.LogEviction(policy.Val()[endpoint.EvictionPolicy], policy.Err(), logger)
	return nil
}

// judge reads what the script says.
func judge(answer any, logger *slog.Logger) error {
	found, err := answers(answer, 3)
	if err != nil {
		return fmt.Errorf("%w (%s)", err, page)
	}
	micros, _ := found[0].(int64)
	failed, _ := found[1].(string)
	mute, _ := found[2].(string)
	switch {
	case failed != "":
		return fmt.Errorf("the server refuses in a script %s (%s)", failed, page)
	case micros <= 0:
		return fmt.Errorf("in a script, the server tells no time, so it cannot judge leases (%s)", page)
	case mute != "":
		logger.Warn("scripts may not publish on this Redis: waiting calls have to poll", "err", mute)
	}
	return nil
}
