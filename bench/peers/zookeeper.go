package peers

import (
	"context"
	"net/url"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
)

var zkLock = Peer{
	Name: "go-zookeeper Lock", Store: servers.ZooKeeper, Module: "github.com/go-zookeeper/zk",
	Note: "Takes no context. Renewal is the session's.",
	Open: func(ctx context.Context, t Target) (distlock.Locker, error) {
		u, err := url.Parse(t.URLs[0])
		if err != nil {
			return nil, err
		}
		conn, events, err := zk.Connect(strings.Split(u.Host, ","), t.TTL, zk.WithLogger(silent{}))
		if err != nil {
			return nil, err
		}
		for up := false; !up; {
			select {
			case e := <-events:
				up = e.State == zk.StateHasSession
			case <-ctx.Done():
				conn.Close()
				return nil, ctx.Err()
			}
		}
		acl := zk.WorldACL(zk.PermAll)
		closeAll := func() error { conn.Close(); return nil }
		return &locker{close: closeAll, lock: func(_ context.Context, name string) (*held, error) {
			l := zk.NewLock(conn, "/bench/"+name, acl)
			if err := l.Lock(); err != nil {
				return nil, err
			}
			return &held{
				unlock: func(context.Context) error { return l.Unlock() },
				// The library says nothing of a lock, but of its session.
				lost: func() bool { return conn.State() == zk.StateExpired },
			}, nil
		}}, nil
	},
}

// silent keeps the client library from writing to the terminal.
type silent struct{}

func (silent) Printf(string, ...any) {}
