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

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
)

const etcdModule = "go.etcd.io/etcd/client/v3"

var (
	etcdShared = Peer{
		Name: "etcd Mutex, shared session", Store: servers.Etcd, Module: etcdModule, Shared: true,
		Note: "`concurrency.Mutex` with one session for each client: it does not exclude within the process.",
		Open: func(_ context.Context, t Target) (distlock.Locker, error) {
			client, err := openEtcd(t)
			if err != nil {
				return nil, err
			}
			session, err := concurrency.NewSession(client, sessionTTL(t))
			if err != nil {
				return nil, errors.Join(err, client.Close())
			}
			closeAll := func() error { return errors.Join(session.Close(), client.Close()) }
			return &locker{close: closeAll, lock: func(ctx context.Context, name string) (*held, error) {
				m := concurrency.NewMutex(session, "bench/"+name)
				if err := m.Lock(ctx); err != nil {
					return nil, err
				}
				return &held{unlock: m.Unlock, lost: func() bool { return ended(session) }}, nil
			}}, nil
		},
	}
	etcdSession = Peer{
		Name: "etcd Mutex, session per lock", Store: servers.Etcd, Module: etcdModule,
		Note: "`concurrency.Mutex` with a session for each lock: only so do two goroutines of one process exclude each other.",
		Open: func(_ context.Context, t Target) (distlock.Locker, error) {
			client, err := openEtcd(t)
			if err != nil {
				return nil, err
			}
			return &locker{close: client.Close, lock: func(ctx context.Context, name string) (*held, error) {
				session, err := concurrency.NewSession(client, sessionTTL(t))
				if err != nil {
					return nil, err
				}
				m := concurrency.NewMutex(session, "bench/"+name)
				if err := m.Lock(ctx); err != nil {
					return nil, errors.Join(err, session.Close())
				}
				return &held{
					unlock: func(ctx context.Context) error { return errors.Join(m.Unlock(ctx), session.Close()) },
					lost:   func() bool { return ended(session) },
				}, nil
			}}, nil
		},
	}
)

func openEtcd(t Target) (*clientv3.Client, error) {
	u, err := url.Parse(t.URLs[0])
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{Endpoints: strings.Split(u.Host, ","), Logger: zap.NewNop()})
}

func sessionTTL(t Target) concurrency.SessionOption {
	return concurrency.WithTTL(int((t.TTL + time.Second - 1) / time.Second))
}

func ended(s *concurrency.Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}
