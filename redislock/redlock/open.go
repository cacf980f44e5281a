package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
	"github.com/distlock-go/distlock/redislock/internal/names"
)

// maxRequestTimeout bounds the timeout of a request where the URL does not name one.
const maxRequestTimeout = time.Second

// maxConns is how many connections there are to a server, where the URL does not say: one for each
// pipeline of a Sender, and two for when those hang. Nobody waits for a server that is slower than
// the majority. So requests to it pile up, and each would open a connection.
const maxConns = endpoint.MaxPipelines + 2

// Open returns a Locker on clients of its own, which closing the Locker closes. rawURL is
//
//	redlock://[user:password@]host1[:port],host2[:port],host3[:port]...[/db]
//
// or redlocks:// for TLS, with at least three servers. An odd number is best: a fourth or sixth
// does not let one more fail. All have the same user, password and database.
//
// Parameters: ttl, holder, token_base, prefix, token_memory, max_ttl, after_restart (wait or trust),
// dial_timeout, request_timeout, pool_size, and those of TLS: tls, tls_ca, tls_cert, tls_key,
// tls_server_name.
//
// It connects, and has each server do once what the driver needs. A majority must be able to. A
// server that cannot be reached is logged; one that refuses, or is listed under two names, is an
// error. ctx bounds the call only. It fails with distlock.ErrInvalid if the URL or the options are
// not allowed. No error shows the password.
func Open(ctx context.Context, rawURL string, o *Options) (_ *Locker, err error) {
	defer func() { err = openurl.Named(rawURL, err) }()
	u, err := openurl.Parse(rawURL, "redlock", "redlocks")
	if err != nil {
		return nil, opened(err)
	}
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	nodes, err := configure(u, &opts)
	if err != nil {
		return nil, opened(err)
	}
	d := newStore(nodes, &opts)
	c, err := driver.New(d, &opts.Options)
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	locker := &Locker{c}
	// The probe comes last, so that wrong options fail before a server is asked.
	if err := d.probe(ctx, opts.Logger); err != nil {
		_ = locker.Close()
		return nil, opened(err)
	}
	return locker, nil
}

func opened(err error) error { return &distlock.Error{Op: "open redlock", Err: err} }

// configure returns the servers that u lists, and completes o.
func configure(u *openurl.URL, o *Options) ([]*node, error) {
	u.Common(&o.Options)
	openurl.Merge(u, "prefix", u.Text("prefix", defaultPrefix), &o.Prefix)
	openurl.Merge(u, "token_memory",
		u.Duration("token_memory", defaultTokenMemory, time.Millisecond, distlock.MaxTTL), &o.TokenMemory)
	openurl.Merge(u, "max_ttl", u.Duration("max_ttl", defaultMaxTTL, time.Second, maxMaxTTL), &o.MaxTTL)
	openurl.Merge(u, "after_restart", u.OneOf("after_restart", "wait", "trust") == "trust", &o.TrustRestarts)
	// Far below the TTL: a server that hangs must leave time for the others.
	config := *endpoint.Options(u, o.TTL, 10, maxRequestTimeout).Simple()
	config.PoolSize = u.Int("pool_size", maxConns, 1, 10000)
	addrs := u.HostsDefault("6379")
	if err := u.Err(); err != nil {
		return nil, err
	}
	var reason string
	if config.DB, reason = endpoint.Database(u.Path()); len(addrs) < minServers {
		reason = fmt.Sprintf("lists %d, allowed are at least %d servers that know nothing of each other, best an odd number", len(addrs), minServers)
	}
	if reason = cmp.Or(reason, endpoint.CheckLogin(config.Username, config.Password)); reason != "" {
		return nil, fmt.Errorf("%w: the URL %s %s", distlock.ErrInvalid, u, reason)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	wait := o.MaxTTL + drift(o.MaxTTL)
	if o.TrustRestarts {
		wait = 0
	}
	var nodes []*node
	for _, config.Addr = range addrs {
		nodes = append(nodes, newNode(config, wait))
	}
	return nodes, nil
}

// check returns what is wrong with the options that a URL cannot say, or may contradict.
func (o *Options) check() error {
	switch {
	case o.MaxTTL < time.Second || o.MaxTTL > maxMaxTTL:
		return fmt.Errorf("%w: MaxTTL is %v, allowed are 1s to %v", distlock.ErrInvalid, o.MaxTTL, maxMaxTTL)
	case o.TokenMemory < 0 || o.TokenMemory > distlock.MaxTTL:
		return fmt.Errorf("%w: TokenMemory is %v, allowed are 0 to %v", distlock.ErrInvalid, o.TokenMemory, distlock.MaxTTL)
	case o.Prefix == "":
		return fmt.Errorf(`%w: the prefix is ""`, distlock.ErrInvalid)
	}
	return names.CheckPrefix(o.Prefix)
}

// How often Open asks a server that does not answer, if there is no majority yet, and the pause.
const (
	maxProbes  = 5
	probePause = 50 * time.Millisecond
)

// probe has each server do once what the driver needs. A minority may not answer; it is asked once.
func (d *store) probe(ctx context.Context, logger *slog.Logger) error {
	type result struct {
		node  int
		tries int
		err   error
	}
	results := make(chan result, maxProbes*len(d.nodes))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // those that are still being asked
	d.each(func(i int, n *node) {
		pause := driver.Retry{First: probePause, Most: probePause}
		for try := 1; try <= maxProbes && ctx.Err() == nil; try++ {
			err := d.probeNode(n, logger)
			results <- result{i, try, err}
			if err == nil || endpoint.Answered(err) || pause.Pause(ctx) != nil {
				return
			}
		}
	})
	last := make([]error, len(d.nodes))
	asked, able, over := 0, 0, 0 // servers: asked once, that can, that will not be asked again
	for over < len(d.nodes) && (asked < len(d.nodes) || able < d.quorum) {
		select {
		case r := <-results:
			last[r.node] = r.err
			if r.tries == 1 {
				asked++
			}
			if r.err == nil {
				able++
			}
			if r.err == nil || endpoint.Answered(r.err) || r.tries == maxProbes {
				over++
			}
		case <-ctx.Done():
			return errors.Join(append(last, ctx.Err())...)
		}
	}
	return d.judge(last, logger)
}

// judge decides by the errors of the servers whether there can be locks.
func (d *store) judge(errs []error, logger *slog.Logger) error {
	var refused, unreached []error
	for _, err := range errs {
		switch {
		case err == nil:
		case endpoint.Answered(err):
			refused = append(refused, err)
		default:
			unreached = append(unreached, endpoint.Explain(err))
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("%w (https://github.com/distlock-go/distlock/blob/main/docs/redis.md#redlock says what a Locker needs)", errors.Join(refused...))
	}
	if able := len(d.nodes) - len(unreached); able < d.quorum {
		return fmt.Errorf("%d of %d servers answer, a majority is needed: %w", able, len(d.nodes), errors.Join(unreached...))
	}
	for _, err := range unreached {
		logger.Warn("a server does not answer; locks are taken on the others", "err", err)
	}
	return d.distinct()
}

// distinct returns an error if two addresses are of one server, as far as that is known: its vote
// would count twice.
func (d *store) distinct() error {
	seen := make(map[runID]string)
	for _, n := range d.nodes {
		id := n.run.Load()
		if id == nil || *id == "" {
			continue
		}
		if other := seen[*id]; other != "" {
			return fmt.Errorf("%w: %s and %s are the same server", distlock.ErrInvalid, other, n.addr)
		}
		seen[*id] = n.addr
	}
	return nil
}

// probeNode takes, renews and releases a key that no name has: names are not empty.
func (d *store) probeNode(n *node, logger *slog.Logger) error {
	const owner, ttl = "0123456789abcdef", 1000
	k := key(fmt.Sprintf("%s{}:probe:%d", d.prefix, time.Now().UnixNano()))
	at := []string{k.entry(), k.token(), k.tombstone(owner)}
	for _, step := range []struct {
		script endpoint.Script
		keys   []string
		args   []any
	}{
		{takeScript, at, []any{owner, 1, ttl, ""}},
		{confirmScript, at, []any{owner, 1, 1, 1, ttl, "", ttl, 0}},
		{renewScript, at[:1], []any{owner + " ", ttl}},
		{inspectScript, at[:2], nil},
		{breakScript, at, []any{1, ttl, ttl}},
		{releaseScript, []string{at[0], at[2]}, []any{owner, 1, 1, ttl}},
	} {
		if _, _, err := n.ask(d.life, step.script, step.keys, step.args...); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(d.life, n.timeout)
	defer cancel()
	if info, err := n.client.Info(ctx, "server").Result(); err == nil { // without the right, it is not compared
		run := runOf(info)
		n.run.CompareAndSwap(nil, &run)
	}
	policy, err := n.client.ConfigGet(ctx, endpoint.EvictionPolicy).Result()
	endpoint.LogEviction(policy[endpoint.EvictionPolicy], err, logger.With("server", n.addr))
	return nil
}
