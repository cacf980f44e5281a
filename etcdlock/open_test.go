package etcdlock

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// wantFailure opens url. Open must fail with an error that says part. The error must
// match target, unless target is nil.
func wantFailure(t *testing.T, ctx context.Context, rawURL string, target error, part string) {
	t.Helper()
	l, err := Open(ctx, rawURL, nil)
	if err == nil {
		_ = l.Close()
		t.Fatalf("Open(%s) has succeeded, want %q", rawURL, part)
	}
	if target != nil && !errors.Is(err, target) || !strings.Contains(err.Error(), part) {
		t.Errorf("Open: %v, want %v and %q", err, target, part)
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error shows the password: %v", err)
	}
	// The end of our own patience must not look like that of the caller's context.
	if ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		t.Errorf("Open: %v, which matches a context's error", err)
	}
}

func TestOpenWithoutServer(t *testing.T) {
	t.Parallel()
	silent := testkit.Silent(t)
	const dead = "127.0.0.1:1" // nobody listens there
	for _, user := range []string{"", "u:s3cret@"} {
		testkit.Within(t, defaultDial/2, func() {
			wantFailure(t, t.Context(), "etcd://"+user+dead, nil, "connection refused")
		})
	}
	wantFailure(t, t.Context(), "etcd://"+silent+"?dial_timeout=100ms", nil, "no answer from")
	wantFailure(t, t.Context(), "etcd://u:s3cret@"+silent+"?dial_timeout=100ms", nil, "no answer from")
	for _, u := range []string{"etcd://" + silent, "etcd://u:s3cret@" + silent} {
		testkit.Within(t, defaultDial/2, func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			wantFailure(t, ctx, u, context.DeadlineExceeded, "")
		})
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	wantFailure(t, done, "etcd://"+silent, context.Canceled, "")
}

// A server that speaks no HTTP/2 may be another store, such as Redis: its port is easily mistaken.
func TestOpenOfAnotherStore(t *testing.T) {
	t.Parallel()
	redis := testkit.Serve(t, nil, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 100))
		_, _ = io.WriteString(c, "-ERR unknown command 'PRI', with args beginning with: '*' 'HTTP/2.0'\r\n")
	})
	wantFailure(t, t.Context(), "etcd://u:s3cret@"+redis, nil, "or is it no etcd?")
}

func TestNewWithoutConnection(t *testing.T) {
	if _, err := New(clientv3.NewCtxClient(t.Context()), nil); !errors.Is(err, distlock.ErrInvalid) {
		t.Errorf("New: %v, want ErrInvalid", err)
	}
}

// TestPermissions holds docs/etcd.md to what it says: a role for the prefix is all
// that a user needs.
func TestPermissions(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	admin := newClient(t, s.Addr())
	must := func(_ any, err error) {
		t.Helper()
		testkit.Must(t, err)
	}
	ctx := t.Context()
	must(admin.RoleAdd(ctx, "locks"))
	must(admin.RoleGrantPermission(ctx, "locks", "app/locks/", clientv3.GetPrefixRangeEnd("app/locks/"), clientv3.PermissionType(clientv3.PermReadWrite)))
	must(admin.UserAdd(ctx, "app", "s3cret"))
	must(admin.UserGrantRole(ctx, "app", "locks"))
	const odd = `p@ss:w/o?r#d% ü"&=x`
	must(admin.UserAdd(ctx, odd, odd))
	must(admin.UserGrantRole(ctx, odd, "locks"))
	must(admin.RoleAdd(ctx, "readers"))
	must(admin.RoleGrantPermission(ctx, "readers", "app/locks/", clientv3.GetPrefixRangeEnd("app/locks/"), clientv3.PermissionType(clientv3.PermRead)))
	must(admin.UserAdd(ctx, "reader", "s3cret"))
	must(admin.UserGrantRole(ctx, "reader", "readers"))
	must(admin.UserAdd(ctx, "root", "root"))
	must(admin.UserGrantRole(ctx, "root", "root"))
	must(admin.AuthEnable(ctx))

	at := func(user, rest string) string { return "etcd://" + user + s.Addr() + rest }
	wantFailure(t, ctx, at("", "/app/locks"), rpctypes.ErrUserEmpty, "")
	wantFailure(t, ctx, at("app:wrong-s3cret@", "/app/locks"), rpctypes.ErrAuthFailed, "")
	wantFailure(t, ctx, at("app:s3cret@", ""), rpctypes.ErrPermissionDenied, "")
	wantFailure(t, ctx, at("app:s3cret@", "/app"), rpctypes.ErrPermissionDenied, `"app/" (https://github.com/distlock-go/distlock/blob/main/docs/etcd.md#permissions)`)
	wantFailure(t, ctx, at("reader:s3cret@", "/app/locks"), rpctypes.ErrPermissionDenied, "needs readwrite")
	escaped := strings.ReplaceAll(url.QueryEscape(odd), "+", "%20")
	if l, err := Open(ctx, at(escaped+":"+escaped+"@", "/app/locks"), nil); err != nil {
		t.Errorf("a user and a password with %s: %v", odd, err)
	} else if err := l.Close(); err != nil {
		t.Error(err)
	}

	locker, err := Open(ctx, at("app:s3cret@", "/app/locks?ttl=20s"), nil)
	testkit.Must(t, err)
	for _, opts := range [][]distlock.Option{nil, {distlock.NoRenewal()}} {
		harness.Exercise(t, locker, "x", opts...)
	}
	// A keep-alive needs rights to all keys of the lease.
	client, err := dial(ctx, clientv3.Config{
		Endpoints: []string{s.Addr()}, Username: "app", Password: "s3cret", DialTimeout: defaultDial, Logger: zap.NewNop(),
	}, "app/locks/")
	testkit.Must(t, err)
	d, err := newDriver(client, "app/locks", true)
	testkit.Must(t, err)
	st := &fixture{t: t, store: d}
	c := st.won("y", nil)
	if list, err := locker.List(ctx, ""); err != nil || len(list) != 1 || list[0].Remaining == 0 {
		t.Errorf("List: %+v, %v", list, err)
	}
	c.lease.age(20 * time.Second)
	if err := st.renew(c)[0]; err != nil {
		t.Error("renewal:", err)
	}
	st.release(c, nil)
	if err := breakSeen(ctx, d, "y"); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("Break: %v, want ErrLost", err)
	}
	// A password that was changed is told as that, once the server wants to see it again.
	c = st.won("z", nil)
	must(newLogin(t, s.Addr(), "root", "root").UserChangePassword(ctx, "app", "another"))
	st.eventually("the renewal tells the reason", func() bool {
		c.lease.age(20 * time.Second)
		err := st.renew(c)[0]
		if err != nil && !errors.Is(err, rpctypes.ErrAuthFailed) {
			t.Errorf("renewal: %v, want %v", err, rpctypes.ErrAuthFailed)
		}
		return err != nil
	})
	// What they hold ends with its TTL.
	_ = errors.Join(d.Close(), locker.Close())
}

// newLogin returns an administrator's client.
func newLogin(t *testing.T, addr, user, password string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Username: user, Password: password, Logger: zap.NewNop()})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Without a deadline of the caller's, a server that accepts and says nothing does
// not hold an operator up for ever.
func TestMute(t *testing.T) {
	t.Parallel()
	locker, err := New(newClient(t, testkit.Silent(t)), nil)
	testkit.Must(t, err)
	ctx := context.Background()
	for what, ask := range map[string]func() error{
		"Inspect": func() error { _, err := locker.Inspect(ctx, "x"); return err },
		"List":    func() error { _, err := locker.List(ctx, ""); return err },
		"Break":   func() error { return locker.Break(ctx, "x", 1) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if err := ask(); err == nil || !strings.Contains(err.Error(), "no answer from etcd") || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want that there was no answer", err)
			}
		})
	}
}

// partial is a server that speaks a part of the protocol, in the manner of kine.
type partial struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	refusal error // of keep-alives
}

// LeaseKeepAlive refuses, or else says of an unknown lease what a grpc-proxy does.
func (p partial) LeaseKeepAlive(s pb.Lease_LeaseKeepAliveServer) error {
	if p.refusal != nil {
		return p.refusal
	}
	return s.Send(&pb.LeaseKeepAliveResponse{TTL: -1})
}

func TestOpenWithoutKeepAlive(t *testing.T) {
	t.Parallel()
	for refusal, why := range map[error]string{
		status.Error(codes.Unimplemented, "unknown method LeaseKeepAlive"): "does not keep leases alive",
		errors.New("lease keep alive is not supported"):                    "does not keep leases alive",
		nil: "this is an etcd grpc-proxy",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		testkit.Must(t, err)
		server := grpc.NewServer()
		pb.RegisterKVServer(server, partial{})
		pb.RegisterLeaseServer(server, partial{refusal: refusal})
		go func() { _ = server.Serve(l) }() // ends with Stop
		t.Cleanup(server.Stop)
		wantFailure(t, t.Context(), "etcd://"+l.Addr().String(), distlock.ErrUnsupported, why)
	}
}

// Open asks for what is needed by two requests, and leaves nothing.
func testProbe(t *testing.T, s *servers.Server) {
	st := newStore(t, s).counted()
	revision := func() int64 {
		t.Helper()
		resp, err := st.admin.Get(t.Context(), st.prefix, clientv3.WithPrefix())
		testkit.Must(t, err)
		if resp.Count != 0 {
			t.Errorf("%d keys", resp.Count)
		}
		return resp.Header.Revision
	}
	revision()
	st.wantRequests("the probe", "map[LeaseKeepAlive:1 Txn:1]", func() {
		testkit.Should(t, probe(t.Context(), st.client, st.prefix))
	})
	revision()
}

// A proxy has reset the stream of a write on the way back. The library must not send
// the write again behind our back: the release of a held lock would say "lost".
func testResetStream(t *testing.T, s *servers.Server) {
	var reset atomic.Bool
	wire := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if err == nil && reset.CompareAndSwap(true, false) {
			return status.Error(codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL")
		}
		return err
	}
	client, err := dial(t.Context(), clientv3.Config{
		Endpoints: []string{s.Addr()}, DialTimeout: defaultDial, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(wire)},
	}, DefaultPrefix)
	testkit.Must(t, err)
	locker, err := newLocker(client, nil, true)
	testkit.Must(t, err)
	for range 2 {
		lock, err := locker.Lock(t.Context(), "x")
		testkit.Must(t, err)
		reset.Store(true)
		if err := lock.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	}
	testkit.Should(t, locker.Close())
}
