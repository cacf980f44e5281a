package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/etcdlock/internal/member"
	"github.com/distlock-go/distlock/internal/openurl"
)

const defaultDial = 5 * time.Second

// Open returns a Locker on a client of its own. Close closes that client, too:
//
//	etcd://[user:password@]host[:2379][,host...][/prefix][?parameter=value&...]
//
// The scheme etcds means TLS. The parameters are ttl, holder, token_base, prefix (if it begins with
// a slash), dial_timeout, tls and the tls_ ones. If both o and rawURL give a value, the two
// must be the same.
//
// Before it returns, Open asks the cluster for what every lock needs. That takes
// dial_timeout (5 s by default) at the most. So an unreachable server, a wrong
// password, a missing permission or a server without leases is an error here. ctx
// bounds the call only. Open fails with distlock.ErrInvalid if the URL or the options
// are not allowed. No error shows the password.
func Open(ctx context.Context, rawURL string, o *Options) (_ *Locker, err error) {
	defer func() { err = openurl.Named(rawURL, err) }()
	if err := ctx.Err(); err != nil {
		return nil, opened(err)
	}
	config, opts, err := parse(rawURL, o)
	if err != nil {
		return nil, opened(err)
	}
	client, err := dial(ctx, config, opts.Prefix)
	if err != nil {
		return nil, opened(err)
	}
	locker, err := newLocker(client, &opts, true)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return locker, nil
}

// parse checks everything that needs no server.
func parse(rawURL string, o *Options) (clientv3.Config, Options, error) {
	opts := *cmp.Or(o, new(Options))
	u, err := openurl.Parse(rawURL, "etcd", "etcds")
	if err != nil {
		return clientv3.Config{}, opts, err
	}
	u.Common(&opts.Options)
	opts.Prefix = slashed(opts.Prefix)
	openurl.Merge(u, "path", slashed(strings.TrimPrefix(u.Path(), "/")), &opts.Prefix)
	openurl.Merge(u, "prefix", slashed(u.Text("prefix", "")), &opts.Prefix)
	config := clientv3.Config{
		DialTimeout: u.Duration("dial_timeout", defaultDial, time.Millisecond, time.Minute),
		TLS:         u.TLS(),
		Logger:      zap.NewNop(), // what it logs are errors that callers get as well
	}
	var login bool
	config.Username, config.Password, login = u.User()
	scheme := "http://"
	if config.TLS != nil {
		scheme = "https://"
		if name := config.TLS.ServerName; name != "" {
			// The library verifies the name of the endpoint, whatever the TLS
			// configuration says. WithAuthority comes before that.
			config.DialOptions = append(config.DialOptions, grpc.WithAuthority(name))
		}
	}
	for _, host := range u.HostsDefault("2379") {
		config.Endpoints = append(config.Endpoints, scheme+host)
	}
	if err = u.Err(); err == nil && login && (config.Username == "" || config.Password == "") {
		// The library would not log in at all.
		err = fmt.Errorf("%w: the URL %s has a user without a password, or a password without a user",
			distlock.ErrInvalid, u)
	}
	if err == nil {
		opts.Prefix, err = checkPrefix(opts.Prefix)
	}
	return config, opts, err
}

// dial makes a client and asks the cluster for what a lock will need.
func dial(ctx context.Context, config clientv3.Config, prefix string) (*clientv3.Client, error) {
	return member.Dial(ctx, config, func(ctx context.Context, c *clientv3.Client) error { return probe(ctx, c, prefix) })
}

// probe asks for what every lock needs, without the library's retries and patience.
// With them, a refused connection would be a timeout without a reason.
//
// The first request is a keep-alive of a random lease, because servers with only a part
// of the protocol lack it. A learner, and a member that has not heard of the login, refuse it
// and have it all the same. The second request reads the prefix. It would write to the
// prefix if a condition were true, but the condition is never true. So it needs the
// rights for both.
func probe(ctx context.Context, client *clientv3.Client, prefix string) error {
	id := clientv3.LeaseID(1 + rand.Int64N(1<<63-1))
	seconds, err := member.KeepAlive(ctx, pb.NewLeaseClient(client.ActiveConnection()), id, grpc.WaitForReady(false))
	switch err = clientv3.ContextError(ctx, err); {
	case err == nil && seconds < 0: // a server says 0
		return fmt.Errorf("%w: this is an etcd grpc-proxy, which answers keep-alives late, and by what it has heard before: name the members instead (https://github.com/distlock-go/distlock/blob/main/docs/etcd.md)",
			distlock.ErrUnsupported)
	case err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) || member.Elsewhere(err):
	case lacksKeepAlive(err):
		return fmt.Errorf("%w: the server does not keep leases alive, as kine, for one, does not, and every lock needs that: %w",
			distlock.ErrUnsupported, err)
	case fate(err) != driver.Answered && status.Code(err) == codes.Unknown && ctx.Err() == nil:
		// An election; the next request goes through the leader.
	default:
		return err
	}
	_, err = client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(prefix), "<", 0)).
		Then(clientv3.OpPut(prefix, "")).
		Else(clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())).
		Commit()
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace): // operators look and break locks all the same
		return nil
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%w: the user needs readwrite on all keys that begin with %q (https://github.com/distlock-go/distlock/blob/main/docs/etcd.md#permissions)", err, prefix)
	}
	return err
}

// lacksKeepAlive reports whether the server has said that it has no such request.
// kine says so in words only.
func lacksKeepAlive(err error) bool {
	return status.Code(err) == codes.Unimplemented || strings.Contains(err.Error(), "not supported")
}
