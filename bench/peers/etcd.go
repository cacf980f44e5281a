package peers

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/distlock-go/distlock/internal/servers"
)

const etcdModule = "go.etcd.io/etcd/client/v3"

var (
	etcdSession = Contender{
		Name: "etcd Mutex, session per lock", Backend: servers.Etcd, Role: Peer, Module: etcdModule,
		Note: "concurrency.Mutex with a session for each lock: only so do two goroutines of one process exclude each other.",
		Open: openEtcdSessions,
	}
	etcdShared = Contender{
		Name: "etcd Mutex, shared session", Backend: servers.Etcd, Role: Peer, Module: etcdModule, Shared: true,
		Note: "concurrency.Mutex with one session for each client: it does not exclude within the process.",
		Open: openEtcdShared,
	}
)

type etcdSessions struct {
	*clientv3.Client
	ttl concurrency.SessionOption
}

type etcdSessionHeld struct {
	mutex   *concurrency.Mutex
	session *concurrency.Session
}

func openEtcd(t Target, options ...grpc.DialOption) (*clientv3.Client, error) {
	u, err := url.Parse(t.URLs[0])
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{Endpoints: strings.Split(u.Host, ","), Logger: zap.NewNop(), DialOptions: options})
}

func sessionTTL(t Target) concurrency.SessionOption {
	return concurrency.WithTTL(int((t.TTL + time.Second - 1) / time.Second))
}

func openEtcdSessions(_ context.Context, t Target) (Client, error) {
	client, err := openEtcd(t)
	if err != nil {
		return nil, err
	}
	return &etcdSessions{client, sessionTTL(t)}, nil
}

func (c *etcdSessions) Lock(ctx context.Context, name string) (Held, error) {
	s, err := concurrency.NewSession(c.Client, c.ttl)
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s, "bench/"+name)
	if err := m.Lock(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &etcdSessionHeld{m, s}, nil
}

func (h *etcdSessionHeld) Unlock(ctx context.Context) error {
	return errors.Join(h.mutex.Unlock(ctx), h.session.Close())
}

func (h *etcdSessionHeld) Lost() bool { return ended(h.session) }

type etcdSharedClient struct {
	*clientv3.Client
	session *concurrency.Session
}

type etcdSharedHeld struct {
	*concurrency.Mutex
	session *concurrency.Session
}

func openEtcdShared(_ context.Context, t Target) (Client, error) {
	client, err := openEtcd(t)
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(client, sessionTTL(t))
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &etcdSharedClient{client, s}, nil
}

func (c *etcdSharedClient) Lock(ctx context.Context, name string) (Held, error) {
	m := concurrency.NewMutex(c.session, "bench/"+name)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return &etcdSharedHeld{m, c.session}, nil
}

func (c *etcdSharedClient) Close() error {
	return errors.Join(c.session.Close(), c.Client.Close())
}

func (h *etcdSharedHeld) Lost() bool { return ended(h.session) }

func ended(s *concurrency.Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}
