// Package member connects to the members of an etcd cluster, and works around what the client
// library does not do well: it comes back late after an outage, logs in for each stream, sends
// writes again behind the caller's back, and gives streams to members that refuse them. A reader
// of locks need not know it.
package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// minConnect is the least that an attempt to connect may take.
	minConnect = 5 * time.Second

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

// reconnection has the client back a second after the server, at the latest. By itself,
// gRPC doubles its pauses up to two minutes, while leases go on running. An attempt to
// connect has the time that Open has, and five seconds at the least: an attempt that has
// lost its packets in an outage keeps the next one from beginning.
func reconnection(dialTimeout time.Duration) grpc.ConnectParams {
	b := backoff.DefaultConfig
	b.MaxDelay = time.Second
	return grpc.ConnectParams{Backoff: b, MinConnectTimeout: max(dialTimeout, minConnect)}
}

// Dial makes a client, and has probe ask the cluster for what is needed. That takes
// config.DialTimeout at the most. Close the client when it is no longer needed. An error is that of ctx if that has
// ended; it names the reason for which a connection was refused, and never shows a password.
func Dial(ctx context.Context, config clientv3.Config, probe func(context.Context, *clientv3.Client) error) (*clientv3.Client, error) {
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
	config.DialKeepAliveTime, config.DialKeepAliveTimeout = keepAliveTime, keepAliveTimeout
	config.DialOptions = append([]grpc.DialOption{
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window), grpc.WithConnectParams(reconnection(config.DialTimeout)),
		grpc.WithChainUnaryInterceptor(Intercept), grpc.WithChainStreamInterceptor(users.stream),
	}, config.DialOptions...)
	client, err := clientv3.New(config)
	if err == nil {
		users.Auth, users.life = client.Auth, client.Ctx()
		client.Auth = users
		probing, cancel := context.WithTimeout(context.WithValue(ctx, openingKey{}, &login), config.DialTimeout)
		err = probe(probing, client)
		cancel()
		if err == nil && stop() {
			return client, nil
		}
		_ = client.Close()
	}
	end()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || status.Code(err) == codes.DeadlineExceeded:
		// The error is a text of our own: nobody must take it for the end of the
		// caller's context.
		err = fmt.Errorf("no answer from %s within %v%s", strings.Join(config.Endpoints, ", "), config.DialTimeout, login.why())
	}
	return nil, explained(config, err)
}

// explained adds the likely reason to an error if it says no more than "the connection has
// ended". With TLS 1.3, a server refuses a certificate after the handshake, and what it says
// of that is lost if the client has begun to write, as the library does.
func explained(config clientv3.Config, err error) error {
	text := err.Error()
	switch {
	case !slices.ContainsFunc([]string{"EOF", "reset by peer", "broken pipe", "reading server preface"}, func(part string) bool {
		return strings.Contains(text, part)
	}):
	case config.TLS == nil:
		return fmt.Errorf("%w (does the server want TLS, as etcds:// means, or is it no etcd?)", err)
	case strings.Contains(text, "handshake failed"):
		return fmt.Errorf("%w (does the server speak TLS?)", err)
	case len(config.TLS.Certificates) == 0:
		return fmt.Errorf("%w (does the server require a client certificate, as tls_cert and tls_key give one?)", err)
	default:
		return fmt.Errorf("%w (does the server accept this client's certificate?)", err)
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

// noteOpening notes what a stream of Dial has met.
func noteOpening(ctx context.Context, err error) {
	if o, opens := ctx.Value(openingKey{}).(*opening); opens {
		o.note(err)
	}
}
