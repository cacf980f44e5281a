package etcdlock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/openurl"
)

const (
	defaultDial = 5 * time.Second

	// The client pings a connection after a request has been waiting on it for
	// keepAliveTime. It closes the connection after keepAliveTimeout without a sign of
	// life. It also closes it if the other host does not acknowledge what was sent
	// within keepAliveTimeout. gRPC allows no less than ten seconds for keepAliveTime.
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second

	// window is the flow-control window of a stream and of a connection, in bytes.
	// Without it, gRPC measures the capacity of the path by itself: it sends a ping for nearly every reply as small as ours
	// are.
	window = 1 << 20
)

// Open returns a Locker on a client of its own. Close closes that client, too:
//
//	etcd://[user:password@]host[:2379][,host...][/prefix][?parameter=value&...]
//
// The scheme etcds means TLS. The parameters are ttl, holder, prefix (if it begins with
// a slash), dial_timeout and the tls_ ones. If both o and rawURL give a value, the two
// must be the same.
//
// Before it returns, Open asks the cluster for what every lock needs. That takes
// dial_timeout (5 s by default) at the most. So an unreachable server, a wrong
// password, a missing permission or a server without leases is an error here. ctx
// bounds the call only. Open fails with distlock.ErrInvalid if the URL or the options
// are not allowed. No error shows the password.
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
	u, err := openurl.Parse(rawURL, "etcd", "etcds")
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
	}
	config.DialOptions = []grpc.DialOption{
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window), grpc.WithConnectParams(reconnection(config.DialTimeout)),
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

// reconnection has the client back a second after the server, at the latest. By itself,
// gRPC doubles its pauses up to two minutes, while leases go on running. An attempt to
// connect has the time that Open has, and five seconds at the least: an attempt that has
// lost its packets in an outage keeps the next one from beginning.
func reconnection(dialTimeout time.Duration) grpc.ConnectParams {
	b := backoff.DefaultConfig
	b.MaxDelay = time.Second
	return grpc.ConnectParams{Backoff: b, MinConnectTimeout: max(dialTimeout, defaultDial)}
}

// dial makes a client and asks the cluster for what a lock will need.
func dial(ctx context.Context, config clientv3.Config, prefix string) (*clientv3.Client, error) {
	// The library logs in within New, on the context of the client's whole life.
	var login opening
	life, end := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), openingKey{}, &login))
	stop := context.AfterFunc(ctx, end)
	defer stop()
	config.Context = life
	users := &logins{name: config.Username, password: config.Password}
	if config.Username != "" {
		config.DialOptions = append(config.DialOptions, grpc.WithPerRPCCredentials(users))
	}
	config.DialOptions = append([]grpc.DialOption{
		grpc.WithChainUnaryInterceptor(intercept), grpc.WithChainStreamInterceptor(users.stream),
	}, config.DialOptions...)
	client, err := clientv3.New(config)
	if err == nil {
		users.Auth, users.life = client.Auth, client.Ctx()
		client.Auth = users
		if err = probe(ctx, client, config.DialTimeout, prefix, &login); err == nil && stop() {
			return client, nil
		}
		_ = client.Close()
	}
	end()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case ended(err) || status.Code(err) == codes.DeadlineExceeded:
		// The error is a text of our own: nobody must take it for the end of the
		// caller's context.
		err = fmt.Errorf("no answer from %s within %v%s", strings.Join(config.Endpoints, ", "), config.DialTimeout, login.why())
	}
	return nil, explained(ctx, config, err)
}

// explained adds the reason to an error if it says no more than "the connection has
// ended".
func explained(ctx context.Context, config clientv3.Config, err error) error {
	text := err.Error()
	switch {
	case !slices.ContainsFunc([]string{"EOF", "reset by peer", "broken pipe", "reading server preface"}, func(part string) bool {
		return strings.Contains(text, part)
	}):
	case config.TLS == nil:
		return fmt.Errorf("%w (does the server want TLS, as etcds:// means?)", err)
	case strings.Contains(text, "handshake failed"):
		return fmt.Errorf("%w (does the server speak TLS?)", err)
	default:
		for _, endpoint := range config.Endpoints {
			if alert := refusedCertificate(ctx, config, endpoint); alert != nil {
				return fmt.Errorf("%w: %w", err, alert)
			}
		}
	}
	return err
}

// refusedCertificate returns what a server says of the client's certificate, or of
// none. In TLS 1.3 the server's alert comes after the handshake. It is lost on the way
// if the client has begun to write, as the library does. So this connection only reads
// then.
func refusedCertificate(ctx context.Context, config clientv3.Config, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c := config.TLS.Clone()
	c.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", strings.TrimPrefix(endpoint, "https://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, err = conn.Read(make([]byte, 1))
	if err != nil && strings.Contains(err.Error(), "tls: ") {
		return err
	}
	return nil
}

// intercept tells the client library that the outcome of a request is not known if its
// stream was reset, as by a proxy. Without it, the library sends writes again, and the
// second answer differs from the first.
func intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	o, opens := ctx.Value(openingKey{}).(*opening)
	if opens {
		opts = append(opts, grpc.WaitForReady(false))
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	if opens {
		o.note(err)
	}
	if text := status.Convert(err).Message(); !opens && unconnected(text) {
		return status.Error(codes.Unavailable, text) // the library would say no more than that the time is over
	}
	if c := status.Code(err); ctx.Err() == nil && (c == codes.Canceled || c == codes.DeadlineExceeded) && cc.GetState() != connectivity.Shutdown {
		return status.Error(codes.Unavailable, "the request was reset: "+status.Convert(err).Message())
	}
	return err
}

// opening is what the requests of Open have met. Its context makes them fail if the
// connection is refused, instead of waiting for one.
type opening struct {
	mu   sync.Mutex
	last string // what gRPC says of the last attempt to connect
}

type openingKey struct{}

func (o *opening) note(err error) {
	if _, text, ok := strings.Cut(status.Convert(err).Message(), "latest balancer error: "); ok {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.last = text
	}
}

// why returns the reason, as the rest of a sentence; empty if there is none.
func (o *opening) why() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == "" {
		return ""
	}
	return ": " + o.last
}

// probe asks for what every lock needs, without the library's retries and patience.
// With them, a refused connection would be a time-out without a reason.
//
// The first request is a keep-alive of a random lease, because servers with only a part
// of the protocol lack it. A learner, and a member that has not heard of the login, refuse it
// and have it all the same. The second request reads the prefix. It would write to the
// prefix if a condition were true, but the condition is never true. So it needs the
// rights for both.
func probe(ctx context.Context, client *clientv3.Client, limit time.Duration, prefix string, o *opening) error {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, openingKey{}, o), limit)
	defer cancel()
	id := clientv3.LeaseID(1 + rand.Int64N(1<<63-1))
	seconds, err := keepAlive(ctx, pb.NewLeaseClient(client.ActiveConnection()), id, grpc.WaitForReady(false))
	o.note(err)
	switch err = clientv3.ContextError(ctx, err); {
	case err == nil && seconds < 0: // a server says 0
		return fmt.Errorf("%w: this is an etcd grpc-proxy, which answers keep-alives late, and by what it has heard before: name the members instead (docs/etcd.md)",
			distlock.ErrUnsupported)
	case err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) || fromLearner(err) || unknownLogin(err):
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
