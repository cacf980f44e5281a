package sandbox

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/distlock-go/distlock/internal/openurl"
)

type bareZooKeeper struct {
	conn  *zk.Conn
	acl   []zk.ACL
	hosts []string
	tls   bool
	root  string
	made  []string // the nodes above root that were not there before, from the top
}

func openBareZooKeeper(ctx context.Context, u *openurl.URL, root string) (Client, error) {
	b := &bareZooKeeper{hosts: u.HostsDefault("2181"), root: root, acl: zk.WorldACL(zk.PermAll)}
	secure := u.TLS()
	b.tls = secure != nil
	if u.Text("acl", "world") == "creator" {
		b.acl = zk.AuthACL(zk.PermAll)
	}
	if err := invalid(u); err != nil {
		return nil, err
	}
	dial := func(network, addr string, limit time.Duration) (net.Conn, error) {
		d := &net.Dialer{Timeout: max(limit, 5*time.Second)}
		if secure != nil {
			return (&tls.Dialer{NetDialer: d, Config: secure}).Dial(network, addr)
		}
		return d.Dial(network, addr)
	}
	conn, _, err := zk.Connect(b.hosts, 10*time.Second, zk.WithLogger(silent{}), zk.WithDialer(dial))
	if err != nil {
		return nil, err
	}
	b.conn = conn
	// The library waits for a server for ever and takes no context.
	stop := context.AfterFunc(ctx, conn.Close)
	defer stop()
	name, password, login := u.User()
	if login {
		err = conn.AddAuth("digest", []byte(name+":"+password))
	}
	if err == nil {
		err = b.makeRoot()
	}
	if err != nil {
		conn.Close()
		return nil, errors.Join(ctx.Err(), err)
	}
	return b, nil
}

// makeRoot makes the root and what is missing above it. The driver would make it,
// too, but nobody would know then what was there before.
func (b *bareZooKeeper) makeRoot() error {
	for i, c := range b.root {
		if c != '/' || i == 0 {
			continue
		}
		if err := b.makeNode(b.root[:i]); err != nil {
			return err
		}
	}
	return b.makeNode(b.root)
}

// makeNode looks first: looking needs no right. Without the right to create a node above
// the prefix, a request to create is refused even if the node exists.
func (b *bareZooKeeper) makeNode(path string) error {
	if exists, _, err := b.conn.Exists(path); err != nil || exists {
		return err
	}
	_, err := b.conn.Create(path, nil, 0, b.acl)
	switch {
	case err == nil && path != b.root:
		b.made = append(b.made, path)
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	}
	return err
}

func (b *bareZooKeeper) Commands() string { return "create ephemeral sequential, delete" }

func (b *bareZooKeeper) Close() error {
	b.conn.Close()
	return nil
}

func (b *bareZooKeeper) Pair(_ context.Context, _ string) error {
	path, err := b.conn.Create(b.root+"/bare-", nil, zk.FlagEphemeral|zk.FlagSequence, b.acl)
	if err != nil {
		return err
	}
	return b.conn.Delete(path, -1)
}

// Version asks by a word of four letters. Many servers are told not to answer it.
func (b *bareZooKeeper) Version(ctx context.Context) string {
	if b.tls {
		return ""
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", b.hosts[0])
	if err != nil {
		return ""
	}
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(time.Second)) != nil {
		return ""
	}
	if _, err := conn.Write([]byte("srvr")); err != nil {
		return ""
	}
	line, _ := bufio.NewReader(conn).ReadString('\n') // what there is of a line
	version, told := strings.CutPrefix(line, "Zookeeper version: ")
	if !told {
		return ""
	}
	if end := strings.IndexAny(version, "-, \n"); end >= 0 {
		version = version[:end] // the build's commit and date follow
	}
	return version
}

// Remove deletes the root with all below, and above it what it has made, unless
// others have moved in there.
func (b *bareZooKeeper) Remove(ctx context.Context) error {
	stop := context.AfterFunc(ctx, b.conn.Close)
	defer stop()
	if err := b.removeTree(ctx, b.root); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	for _, path := range slices.Backward(b.made) {
		err := b.conn.Delete(path, -1)
		if errors.Is(err, zk.ErrNotEmpty) {
			return nil
		}
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}

// removeTree deletes a node with all below. The server removes empty containers of
// names at the same time, and a session that has just been closed may leave a moment
// after its client.
func (b *bareZooKeeper) removeTree(ctx context.Context, path string) error {
	for {
		children, _, err := b.conn.Children(path)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, c := range children {
			if err := b.removeTree(ctx, path+"/"+c); err != nil {
				return err
			}
		}
		err = b.conn.Delete(path, -1)
		if err == nil || errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if !errors.Is(err, zk.ErrNotEmpty) || ctx.Err() != nil {
			return err
		}
	}
}

// silent keeps the client library from writing to the terminal.
type silent struct{}

func (silent) Printf(string, ...any) {}

type bareEtcd struct {
	client *clientv3.Client
	prefix string
}

func openBareEtcd(u *openurl.URL, prefix string) (Client, error) {
	config := clientv3.Config{DialTimeout: 5 * time.Second, TLS: u.TLS(), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)}}
	scheme := "http://"
	if config.TLS != nil {
		scheme = "https://"
		if name := config.TLS.ServerName; name != "" { // the library leaves it to us
			config.DialOptions = append(config.DialOptions, grpc.WithAuthority(name))
		}
	}
	for _, host := range u.HostsDefault("2379") {
		config.Endpoints = append(config.Endpoints, scheme+host)
	}
	config.Username, config.Password, _ = u.User()
	if err := invalid(u); err != nil {
		return nil, err
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	return &bareEtcd{client, prefix}, nil
}

// failFast has calls fail if no server can be connected to. The library would wait for
// one, at a login for DialTimeout, and then say nothing of why.
func failFast(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return call(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

func (b *bareEtcd) Commands() string { return "put, delete" }
func (b *bareEtcd) Close() error     { return b.client.Close() }

func (b *bareEtcd) Pair(ctx context.Context, key string) error {
	if _, err := b.client.Put(ctx, b.prefix+key, "owner"); err != nil {
		return err
	}
	_, err := b.client.Delete(ctx, b.prefix+key)
	return err
}

func (b *bareEtcd) Version(ctx context.Context) string {
	status, err := b.client.Status(ctx, b.client.Endpoints()[0])
	if err != nil {
		return ""
	}
	return status.Version
}

// Remove deletes the keys. Leases without keys end by themselves; those of Lockers
// that were closed have ended with them.
func (b *bareEtcd) Remove(ctx context.Context) error {
	_, err := b.client.Delete(ctx, b.prefix, clientv3.WithPrefix())
	return err
}
