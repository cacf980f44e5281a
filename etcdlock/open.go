package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
)

// Schemes are the URL schemes that Open understands.
var Schemes = []string{"etcd", "etcds"}

const (
	defaultDial = 5 * time.Second

	// A connection on which a request has been waiting for keepAliveTime is pinged,
	// and closed after keepAliveTimeout without a sign of life; what was sent and
	// not acknowledged by the other host closes it after keepAliveTimeout, too.
	// gRPC allows no less than ten seconds for the first.
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second

	// window is the flow-control window of a stream and of a connection, in bytes:
	// room for the listing of a full lease. Left to itself, gRPC measures what the
	// path can carry, with a ping for nearly every reply as small as ours are.
	window = 1 << 20
)

// Open returns a Locker on a client of its own, which is closed with it:
//
//	etcd://[user:password@]host[:2379][,host...][/prefix][?parameter=value&...]
//
// The scheme etcds means TLS. The parameters are ttl, holder, prefix (for one that
// begins with a slash), dial_timeout and the tls_ ones; what both o and rawURL give
// must be the same.
//
// It asks the cluster for a key before it returns, in dial_timeout (5 s by default)
// at the most, so that an unreachable server, a wrong password or a missing
// permission is an error here. ctx bounds the call only. It fails with
// distlock.ErrInvalid if the URL or the options are not allowed. No error shows the
// password.
func Open(ctx context.Context, rawURL string, o *Options) (*Locker, error) {
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
	var opts Options
	if o != nil {
		opts = *o
	}
	u, err := openurl.Parse(rawURL, Schemes...)
	if err != nil {
		return clientv3.Config{}, opts, err
	}
	u.Common(&opts.Options)
	opts.Prefix = slashed(opts.Prefix)
	openurl.Merge(u, "path", slashed(strings.TrimPrefix(u.Path(), "/")), &opts.Prefix)
	openurl.Merge(u, "prefix", slashed(u.Text("prefix", "")), &opts.Prefix)
	config := clientv3.Config{
		DialTimeout:          u.Duration("dial_timeout", defaultDial, time.Millisecond, time.Minute),
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		TLS:                  u.TLS(),
		Logger:               zap.NewNop(), // what it logs are errors that callers get as well
		DialOptions:          []grpc.DialOption{grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window)},
	}
	var login bool
	config.Username, config.Password, login = u.User()
	scheme := "http://"
	if config.TLS != nil {
		scheme = "https://"
		if name := config.TLS.ServerName; name != "" {
			// The library verifies the name of the endpoint whatever the TLS
			// configuration says; this comes before that.
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

// dial makes a client and asks the cluster for the first key with the prefix.
func dial(ctx context.Context, config clientv3.Config, prefix string) (*clientv3.Client, error) {
	// The library logs in within New, on the context of the client's whole life.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	defer stop()
	config.Context = life
	client, err := clientv3.New(config)
	if err == nil {
		if err = ping(ctx, client, config.DialTimeout, prefix); err == nil && stop() {
			return client, nil
		}
		_ = client.Close()
	}
	end()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		// Not the caller's deadline, which it must not be taken for.
		err = fmt.Errorf("no answer from %s within %v", strings.Join(config.Endpoints, ", "), config.DialTimeout)
	}
	return nil, err
}

// ping reads on the way that takes the library's retries and patience out: with
// them, an address where nobody listens would be a time-out without a reason.
func ping(ctx context.Context, client *clientv3.Client, limit time.Duration, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r := &pb.RangeRequest{Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)), Limit: 1, KeysOnly: true}
	_, err := pb.NewKVClient(client.ActiveConnection()).Range(ctx, r, grpc.WaitForReady(false))
	return clientv3.ContextError(ctx, err)
}
