package redislock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
)

// checkpoint stands between a client and its connections.
type checkpoint struct {
	single   func(next func() error) error
	pipeline func(n int, next func() error) error
}

func (p *checkpoint) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *checkpoint) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if p.single == nil || cmd.Name() == "hello" { // how a connection begins
			return next(ctx, cmd)
		}
		err := p.single(func() error { return next(ctx, cmd) })
		cmd.SetErr(err)
		return err
	}
}

func (p *checkpoint) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if p.pipeline == nil || cmds[0].Name() != "evalsha" { // the same
			return next(ctx, cmds)
		}
		err := p.pipeline(len(cmds), func() error { return next(ctx, cmds) })
		if err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// busyStore returns a driver without a free connection, until free is called.
func busyStore(t *testing.T, p *checkpoint, delay time.Duration) (d *store, free func()) {
	t.Helper()
	c := client(t, server(t).URL())
	d = driverOn(t, c, freshPrefix())
	warm := d.claim("warm", long)
	grants(t, warm)
	releases(t, warm)
	d.sender.Delay = delay
	return d, occupy(t, d, p, func(err error) {
		if err != nil {
			t.Errorf("a request that was under way: %v", err)
		}
	})
}

// occupy has endpoint.MaxPipelines requests wait at a checkpoint of d until free is called. Later
// requests wait in its sender.
func occupy(t *testing.T, d *store, p *checkpoint, judge func(error)) (free func()) {
	t.Helper()
	release, arrived := make(chan struct{}), make(chan struct{}, endpoint.MaxPipelines)
	var passing atomic.Int32
	p.single = func(next func() error) error {
		if passing.Add(1) <= endpoint.MaxPipelines {
			arrived <- struct{}{}
			<-release
		}
		return next()
	}
	d.client.AddHook(p)
	var sent sync.WaitGroup
	for i := range endpoint.MaxPipelines {
		sent.Go(func() {
			judge(second(d.claim(fmt.Sprint("sent", i), long).Try(context.Background())))
		})
		<-arrived // one after the other, or two of them share a pipeline
	}
	var once sync.Once
	free = func() {
		once.Do(func() { close(release) })
		sent.Wait()
	}
	t.Cleanup(free)
	return free
}

// waiting waits until n requests are.
func waiting(t *testing.T, d *store, n int) {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("%d requests wait", n), func() bool {
		return d.sender.Waiting() == n
	})
}

func TestRequestsGoTogether(t *testing.T) {
	t.Parallel()
	const many = endpoint.MaxBatch + 20
	var mu sync.Mutex
	var sizes []int
	d, free := busyStore(t, &checkpoint{pipeline: func(n int, next func() error) error {
		mu.Lock()
		sizes = append(sizes, n)
		mu.Unlock()
		return next()
	}}, time.Hour)
	tokens := make([]int64, many)
	claims := make([]*claim, many)
	var all sync.WaitGroup
	for i := range many {
		claims[i] = d.claim(fmt.Sprint("x", i), long)
		all.Go(func() {
			g, err := claims[i].Try(t.Context())
			testkit.Should(t, err)
			tokens[i] = g.Token
		})
	}
	waiting(t, d, many)
	free()
	all.Wait()
	total := 0
	for _, n := range sizes {
		total += n
		if n > endpoint.MaxBatch {
			t.Errorf("%d requests in one pipeline, want %d at the most", n, endpoint.MaxBatch)
		}
	}
	if len(sizes) > endpoint.MaxPipelines || total < many-endpoint.MaxPipelines {
		t.Errorf("%d requests went in pipelines of %v", many, sizes)
	}
	for i, c := range claims {
		if st, err := d.Inspect(t.Context(), c.request.Name); err != nil || st.Token != tokens[i] || tokens[i] == 0 {
			t.Errorf("%s was granted with token %d, the server says %d, %v", c.request.Name, tokens[i], st.Token, err)
		}
		if c.ambiguous {
			t.Errorf("%s: its request was sent once, and is said to be under way still", c.request.Name)
		}
		releases(t, c)
	}
}

// A request leaves nothing and delays no other if it is cancelled before it was sent.
func TestCancelledRequestIsNotSent(t *testing.T) {
	t.Parallel()
	d, free := busyStore(t, new(checkpoint), time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	var cancelled, others sync.WaitGroup
	for i := range 20 {
		cancelled.Go(func() {
			c := d.claim(fmt.Sprint("cancelled", i), long)
			if _, err := c.Try(ctx); !errors.Is(err, context.Canceled) || driver.FateOf(err) != driver.NotSent || c.ambiguous {
				t.Errorf("Try whose context ended: %v (%v), ambiguous %v", err, driver.FateOf(err), c.ambiguous)
			}
		})
		others.Go(func() {
			if _, err := d.claim(fmt.Sprint("other", i), long).Try(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	waiting(t, d, 40)
	cancel()
	cancelled.Wait() // though nothing has come back
	waiting(t, d, 20)
	free()
	others.Wait()
	for i := range 20 {
		if st, err := d.Inspect(t.Context(), fmt.Sprint("cancelled", i)); err != nil || st.Held {
			t.Errorf("the name of a cancelled request: %+v, %v", st, err)
		}
	}
}

// A pipeline without replies delays its callers only: locks are acquired and released, each once.
func TestPipelineWithItsRepliesLost(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprintf("applied=%v", applied), func(t *testing.T) {
			lossy := &lossy{applied: applied, seen: make(map[string]bool)}
			c := redis.NewClient(&redis.Options{Addr: server(t).Addr(), Dialer: lossy.dial, ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = c.Close() })
			l := lockerOn(t, c, &Options{Prefix: freshPrefix()})
			var all sync.WaitGroup
			for i := range 64 {
				all.Go(func() {
					for range 8 {
						lock, err := l.Lock(t.Context(), fmt.Sprint("x", i))
						if testkit.Should(t, err); err != nil {
							return
						}
						testkit.Should(t, lock.Unlock(t.Context()))
					}
				})
			}
			all.Wait()
			if lossy.lost < 3 {
				t.Error("the requests did not come at the same time: the test is none")
			}
			testkit.Until(t, "nothing is left but tombstones", func() bool {
				for i := range 64 {
					if st, err := distlock.Inspect(t.Context(), l, fmt.Sprint("x", i)); err != nil || st.Held || st.Waiters > 0 {
						return false
					}
				}
				return true
			})
		})
	}
}

// lossy connects a client, and closes the connection of every third pipeline at the time of
// sending: before it arrives, or before its replies do. Not if a request of the claim was lost before.
type lossy struct {
	applied bool

	mu   sync.Mutex
	sent int
	lost int
	seen map[string]bool // by owner
}

var owners = regexp.MustCompile(`\b[0-9a-f]{32}\b`)

func (l *lossy) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &lossyConn{Conn: c, lossy: l}, err
}

type lossyConn struct {
	net.Conn
	lossy *lossy
	deaf  atomic.Bool // before the replies can come: a pipeline that had them would leave its lost connection to another
}

func (c *lossyConn) Read(p []byte) (int, error) {
	if c.deaf.Load() {
		return 0, io.EOF
	}
	return c.Conn.Read(p)
}

func (c *lossyConn) Write(p []byte) (int, error) {
	l := c.lossy
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sent++; bytes.Count(p, []byte("evalsha")) < 2 || l.sent%3 != 0 {
		return c.Conn.Write(p)
	}
	claims := owners.FindAllString(string(p), -1)
	if slices.ContainsFunc(claims, func(owner string) bool { return l.seen[owner] }) {
		return c.Conn.Write(p)
	}
	for _, owner := range claims {
		l.seen[owner] = true
	}
	l.lost++
	c.deaf.Store(true)
	if l.applied {
		return c.Conn.Write(p)
	}
	return len(p), c.Conn.Close()
}

// When no answer comes back, no request waits for long: other connections may work.
func TestRequestsPassConnectionsThatHang(t *testing.T) {
	t.Parallel()
	d, _ := busyStore(t, new(checkpoint), endpoint.MaxDelay)
	a := d.claim("x", long)
	grants(t, a)
	releases(t, a)
}

// Where no connection can be made, every caller is told why, in the server's words.
func TestPipelineWithoutAConnection(t *testing.T) {
	t.Parallel()
	s, admin := own(t)
	testkit.Must(t, admin.ConfigSet(t.Context(), "requirepass", "new").Err())
	d := driverOn(t, client(t, "redis://:old@"+s.Addr()), freshPrefix())
	d.sender.Delay = time.Hour
	refused := func(err error) {
		if !redis.HasErrorPrefix(err, "WRONGPASS") {
			t.Errorf("a request with a password that is no longer right: %v, want the server's answer", err)
		}
	}
	free := occupy(t, d, new(checkpoint), refused)
	var all sync.WaitGroup
	for i := range 3 {
		a := d.claim(fmt.Sprint("x", i), long)
		a.token = 1
		call := func() error { return a.Release(t.Context()) }
		if i < 2 {
			call = func() error { return second(a.Try(t.Context())) }
		}
		all.Go(func() { refused(call()) })
		waiting(t, d, i+1)
	}
	free()
	all.Wait()
}
