package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/etcdlock/internal/member"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A lock is renewed, a waiter looks and a name is locked as soon as the server is back, also by
// a client that pauses for an hour before it connects again: the next request ends the pause.
func TestComesBack(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	for what, use := range map[string]func(st *fixture, held, waiter *claim){
		"renewal": func(st *fixture, held, _ *claim) {
			held.lease.heard(20 * time.Second) // of 32
			if err := st.renew(held)[0]; err != nil {
				t.Error("the renewal:", err)
			}
		},
		"look": func(st *fixture, _, waiter *claim) { st.held(waiter) },
		"lock": func(st *fixture, _, _ *claim) {
			c := st.claim("y", nil)
			st.eventually("a free name is locked", func() bool {
				_, err := c.Try(t.Context())
				return err == nil
			})
		},
	} {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{s.Addr()},
			Logger:    zap.NewNop(),
			DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(member.Intercept), grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: time.Hour, Multiplier: 1, MaxDelay: time.Hour},
				MinConnectTimeout: time.Minute,
			})},
		})
		testkit.Must(t, err)
		d, err := newDriver(client, what, true)
		testkit.Must(t, err)
		st := (&fixture{t: t, store: d}).counted()
		held, waiter := st.won("x", nil), st.claim("x", nil)
		st.held(waiter)
		testkit.Must(t, s.Kill(t.Context()))
		refused := func() bool { return client.ActiveConnection().GetState() == connectivity.TransientFailure }
		st.eventually("the client has met a refusal", refused)
		held.lease.heard(0)
		unsent := st.claim("z", nil)
		ctx, cancel := context.WithTimeout(t.Context(), 2*reconnectPeriod)
		if _, err := unsent.Try(ctx); driver.FateOf(err) != driver.NotSent || unsent.lease != nil {
			t.Errorf("Try without a server: %v (%v), want one that was not sent, and nothing kept of it", err, driver.FateOf(err))
		}
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), 2*reconnectPeriod)
		batch := []driver.Renewal{{Claim: held, TTL: held.request.TTL}}
		held.lease.heard(20 * time.Second)
		if d.Renew(ctx, batch); batch[0].Err == nil {
			t.Error("a renewal without a server has succeeded")
		}
		cancel()
		st.eventually("it has met another", refused)
		testkit.Must(t, s.Restart(t.Context()))
		use(st, held, waiter)
		st.release(held, nil)
		_ = waiter.Release(t.Context())
		testkit.Should(t, d.Close())
	}
}

// While one of three members is killed, no call fails: what it has under way is asked of another.
func TestKilledMember(t *testing.T) {
	t.Parallel()
	e := servers.EnsembleForTest(t, servers.Etcd, 3, servers.Setup{})
	leader, err := e.Leader(t.Context())
	testkit.Must(t, err)
	l, err := Open(t.Context(), e.URL(), nil)
	testkit.Must(t, err)
	defer l.Close()
	admin := newLogin(t, leader.Addr(), "", "")
	term := func() uint64 {
		st, err := admin.Status(t.Context(), leader.Addr())
		testkit.Must(t, err)
		return st.RaftTerm
	}
	elected := term()
	var mu sync.Mutex
	var failed []error
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failed = append(failed, err)
	}
	killed := make(chan struct{})
	var begun, users sync.WaitGroup
	begun.Add(16)
	for i := range 16 {
		users.Go(func() {
			first := sync.OnceFunc(begun.Done)
			defer first()
			for more := 5; more > 0; {
				lock, err := l.TryLock(t.Context(), fmt.Sprint(i))
				if err == nil {
					err = lock.Unlock(t.Context())
				}
				if err != nil {
					fail(err)
					return
				}
				first()
				select {
				case <-killed:
					more--
				default:
				}
			}
		})
	}
	begun.Wait()
	for _, s := range e.Members {
		if s != leader {
			testkit.Should(t, s.Pause(t.Context())) // what comes now is under way when it ends
			testkit.Should(t, s.Kill(t.Context()))
			break
		}
	}
	close(killed)
	users.Wait()
	if len(failed) > 0 && term() != elected {
		testkit.Inconclusivef(t, "the leader stood still, and another was elected: %v", errors.Join(failed...))
	}
	testkit.Should(t, errors.Join(failed...))
}
