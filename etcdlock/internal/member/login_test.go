package member

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A keep-alive with a login that has run out is refused, and the next one has a new login.
func TestLoginRunsOut(t *testing.T) {
	t.Parallel()
	key := t.TempDir() + "/key"
	testkit.Must(t, os.WriteFile(key, []byte("some secret"), 0o600))
	e := servers.EnsembleForTest(t, servers.Etcd, 1, servers.Setup{Extra: []string{
		"--auth-token=jwt,sign-method=HS256,ttl=1s,priv-key=" + key, "--bcrypt-cost=4",
	}})
	ctx := context.WithoutCancel(t.Context())
	config := clientv3.Config{Endpoints: e.Addrs(), DialTimeout: minConnect, Logger: zap.NewNop()}
	admin, err := clientv3.New(config)
	testkit.Must(t, err)
	defer admin.Close()
	for _, step := range []func() error{
		func() error { _, err := admin.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := admin.AuthEnable(ctx); return err },
	} {
		testkit.Must(t, step())
	}
	config.Username, config.Password = "root", "secret"
	client, err := Dial(ctx, config, func(ctx context.Context, c *clientv3.Client) error { _, err := c.Get(ctx, "x"); return err })
	testkit.Must(t, err)
	defer client.Close()
	lease, err := client.Grant(ctx, 60)
	testkit.Must(t, err)
	l := client.Auth.(*logins)
	old := l.last.Load()
	keep := func() error {
		_, err := KeepAlive(ctx, pb.NewLeaseClient(client.ActiveConnection()), lease.ID)
		return err
	}
	testkit.Until(t, "the login has run out", func() bool {
		l.refused.Store(nil)
		l.last.Store(old)
		return Elsewhere(keep())
	})
	if err := keep(); err != nil {
		t.Error("the next keep-alive:", err)
	}
	if l.last.Load() == old {
		t.Error("a keep-alive has used a login that has run out")
	}
}

type countedLogins struct {
	clientv3.Auth
	n   int
	err error
}

func (c *countedLogins) Authenticate(context.Context, string, string) (*clientv3.AuthenticateResponse, error) {
	c.n++
	return &clientv3.AuthenticateResponse{Token: fmt.Sprint(c.n)}, c.err
}

// A keep-alive uses the last login, everything else logs in.
func TestLastLogin(t *testing.T) {
	server := new(countedLogins)
	l := &logins{Auth: server, life: t.Context()}
	ctx := t.Context()
	for i, step := range []struct {
		ctx  context.Context
		err  error
		want string
	}{
		{LastLogin(ctx), nil, "1"}, // there was none
		{LastLogin(ctx), nil, "1"},
		{ctx, nil, "2"},
		{ctx, errors.New("no answer"), ""},
		{LastLogin(ctx), nil, "2"},
	} {
		server.err = step.err
		resp, err := l.Authenticate(step.ctx, "app", "secret")
		if err != step.err || err == nil && resp.Token != step.want {
			t.Errorf("step %d: %v, %v, want the login %s", i, resp, err, step.want)
		}
	}
}

// slowLogins answers when it is told to.
type slowLogins struct {
	clientv3.Auth
	asked chan chan string
}

func (s *slowLogins) Authenticate(ctx context.Context, _, _ string) (*clientv3.AuthenticateResponse, error) {
	answer := make(chan string)
	s.asked <- answer
	select {
	case token := <-answer:
		return &clientv3.AuthenticateResponse{Token: token}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A login goes on when the request that needs it is given up, and serves the next. One
// that hangs does not keep the others waiting, and what it says later is old.
func TestSlowLogin(t *testing.T) {
	server := &slowLogins{asked: make(chan chan string, 3)}
	l := &logins{Auth: server, life: t.Context()}
	ctx, giveUp := context.WithCancel(t.Context())
	type result struct {
		resp *clientv3.AuthenticateResponse
		err  error
	}
	begin := func(ctx context.Context) (chan result, chan string) {
		done := make(chan result, 1)
		go func() {
			resp, err := l.Authenticate(ctx, "app", "secret")
			done <- result{resp, err}
		}()
		return done, <-server.asked
	}
	wantToken := func(want string) {
		t.Helper()
		testkit.Until(t, "requests are sent with the login "+want, func() bool {
			sent, _ := l.GetRequestMetadata(t.Context())
			return sent["token"] == want
		})
	}

	given, slow := begin(ctx)
	giveUp()
	if r := <-given; !errors.Is(r.err, context.Canceled) {
		t.Errorf("a login for a request that was given up: %v", r.err)
	}
	slow <- "1"
	wantToken("1")

	first, hangs := begin(t.Context())
	second, answers := begin(t.Context())
	answers <- "3"
	for _, done := range []chan result{first, second} {
		if r := <-done; r.err != nil || r.resp.Token != "3" {
			t.Errorf("%v, %v, want the login 3", r.resp, r.err)
		}
	}
	hangs <- "2"
	third, last := begin(t.Context())
	wantToken("3")
	last <- "4"
	<-third
	wantToken("4")

	// One that says its end is replaced before that, and no request waits for it.
	end := time.Now().Add(time.Hour)
	token := "head." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, end.Unix())) + ".sign"
	fourth, ending := begin(t.Context())
	ending <- token
	<-fourth
	l.mu.Lock()
	if left := time.Until(l.due); left <= 0 || left > time.Hour/2 {
		t.Errorf("the next login is due in %v, want half an hour", left)
	}
	l.due = time.Now()
	l.mu.Unlock()
	wantToken(token)
	next := <-server.asked
	wantToken(token)
	next <- "5"
	wantToken("5")
}
