package peers

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/distlock-go/distlock/internal/servers"
)

var zkLock = Contender{
	Name: "go-zookeeper Lock", Backend: servers.ZooKeeper, Role: Peer, Module: "github.com/go-zookeeper/zk",
	Note: "Its Lock takes no context. Renewal is the session's.",
	Open: func(ctx context.Context, t Target) (Client, error) {
		conn, err := openZooKeeper(ctx, t, "/bench-zk")
		return &zkClient{conn}, err
	},
}

type zkClient struct{ *zk.Conn }

type zkHeld struct {
	*zk.Lock
	conn *zk.Conn
}

// openZooKeeper connects, and makes a node to work under.
func openZooKeeper(ctx context.Context, t Target, root string) (*zk.Conn, error) {
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
	if _, err := conn.Create(root, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func (c *zkClient) Lock(_ context.Context, name string) (Held, error) {
	l := zk.NewLock(c.Conn, "/bench-zk/"+name, zk.WorldACL(zk.PermAll))
	if err := l.Lock(); err != nil {
		return nil, err
	}
	return &zkHeld{l, c.Conn}, nil
}

func (c *zkClient) Close() error {
	c.Conn.Close()
	return nil
}

func (h *zkHeld) Unlock(context.Context) error { return h.Lock.Unlock() }

// Lost implements Held: the library says nothing of a lock, but of its session.
func (h *zkHeld) Lost() bool { return h.conn.State() == zk.StateExpired }

// silent keeps the client library from writing to the terminal.
type silent struct{}

func (silent) Printf(string, ...any) {}
