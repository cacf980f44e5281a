package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
)

// checkpoint stands between a client and its connections.
type checkpoint struct {
	single   func(next func() error) error
	pipeline func(n int, next func() error) error
}

func (p *checkpoint) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *checkpoint) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if p.single == nil {
			return next(ctx, cmd)
		}
		err := p.single(func() error { return next(ctx, cmd) })
		cmd.SetErr(err)
		return err
	}
}

func (p *checkpoint) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if p.pipeline == nil || cmds[0].Name() != "evalsha" { // how a connection begins is a pipeline, too
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

// crowded returns a driver whose connections are all taken: maxFlying requests
// wait at its checkpoint until free is called, and so do those that come after
// them, in its convoy.
func crowded(t *testing.T, p *checkpoint, halt time.Duration) (d *driver, free func()) {
	t.Helper()
	gate, arrived := make(chan struct{}), make(chan struct{}, maxFlying)
	var passing atomic.Int32
	p.single = func(next func() error) error {
		if passing.Add(1) <= maxFlying {
			arrived <- struct{}{}
			<-gate
		}
		return next()
	}
	c := client(t, server(t).URL())
	d = driverOn(t, c, freshPrefix())
	d.convoy.halt = halt
	warm := d.bid("warm", long)
	grants(t, warm)
	releases(t, warm)
	c.AddHook(p)
	var flying sync.WaitGroup
	for i := range maxFlying {
		flying.Go(func() {
			a := d.bid(fmt.Sprint("flying", i), long)
			if _, err := a.Try(context.Background()); err != nil {
				t.Errorf("a request that was under way: %v", err)
			}
		})
	}
	for range maxFlying {
		<-arrived
	}
	var once sync.Once
	free = func() {
		once.Do(func() { close(gate) })
		flying.Wait()
	}
	t.Cleanup(free)
	return d, free
}

// inLine waits until n requests are.
func inLine(t *testing.T, d *driver, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d requests wait", n), func() bool {
		d.convoy.mu.Lock()
		defer d.convoy.mu.Unlock()
		return len(d.convoy.waiting) == n
	})
}

func TestRequestsGoTogether(t *testing.T) {
	const many = maxConvoy + 20
	var mu sync.Mutex
	var sizes []int
	d, free := crowded(t, &checkpoint{pipeline: func(n int, next func() error) error {
		mu.Lock()
		sizes = append(sizes, n)
		mu.Unlock()
		return next()
	}}, time.Hour)
	tokens := make([]int64, many)
	claims := make([]*claim, many)
	var all sync.WaitGroup
	for i := range many {
		claims[i] = d.bid(fmt.Sprint("x", i), long)
		all.Go(func() {
			g, err := claims[i].Try(t.Context())
			if err != nil {
				t.Error(err)
			}
			tokens[i] = g.Token
		})
	}
	inLine(t, d, many)
	free()
	all.Wait()
	total := 0
	for _, n := range sizes {
		total += n
		if n > maxConvoy {
			t.Errorf("%d requests in one pipeline, want %d at the most", n, maxConvoy)
		}
	}
	if len(sizes) > maxFlying || total < many-maxFlying {
		t.Errorf("%d requests went in pipelines of %v", many, sizes)
	}
	for i, c := range claims {
		if st, err := d.Inspect(t.Context(), c.request.Name); err != nil || st.Token != tokens[i] || tokens[i] == 0 {
			t.Errorf("%s was granted with token %d, the server says %d, %v", c.request.Name, tokens[i], st.Token, err)
		}
		if c.unclear {
			t.Errorf("%s: its request was sent once, and is said to be under way still", c.request.Name)
		}
		releases(t, c)
	}
}

// Who leaves before its request was sent leaves nothing, and keeps nobody from going.
func TestLeavingTheLine(t *testing.T) {
	d, free := crowded(t, new(checkpoint), time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	var leavers, stayers sync.WaitGroup
	for i := range 20 {
		leavers.Go(func() {
			if _, err := d.bid(fmt.Sprint("left", i), long).Try(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Try whose context ended: %v", err)
			}
		})
		stayers.Go(func() {
			if _, err := d.bid(fmt.Sprint("stayed", i), long).Try(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	inLine(t, d, 40)
	cancel()
	leavers.Wait() // though nothing has come back
	inLine(t, d, 20)
	free()
	stayers.Wait()
	for i := range 20 {
		if st, err := d.Inspect(t.Context(), fmt.Sprint("left", i)); err != nil || st.Held {
			t.Errorf("the name of who left: %+v, %v", st, err)
		}
	}
}

// A pipeline whose replies are lost is no other's fault: locks are taken and freed
// all the same, each once.
func TestPipelineWithItsRepliesLost(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprintf("applied=%v", applied), func(t *testing.T) {
			c := client(t, server(t).URL())
			prefix := freshPrefix()
			l := lockerOn(t, c, &Options{Prefix: prefix})
			var lost atomic.Int32
			c.AddHook(&checkpoint{pipeline: func(n int, next func() error) error {
				if lost.Add(1)%3 != 0 {
					return next()
				}
				if applied {
					_ = next() // its reply is what is lost
				}
				return &net.OpError{Op: "read", Err: context.DeadlineExceeded}
			}})
			var all sync.WaitGroup
			for i := range 64 {
				all.Go(func() {
					for range 20 {
						lock, err := l.Lock(t.Context(), fmt.Sprint("x", i))
						if err != nil {
							t.Error(err)
							return
						}
						if err := lock.Unlock(t.Context()); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			if lost.Load() < 3 {
				t.Error("the requests did not come at the same time: the test is none")
			}
			eventually(t, "nothing is left but places of the dead", func() bool {
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

// When nothing comes back, nobody waits for long: other connections may work.
func TestNobodyWaitsBehindConnectionsThatHang(t *testing.T) {
	d, _ := crowded(t, new(checkpoint), maxHalt)
	a := d.bid("x", long)
	grants(t, a)
	releases(t, a)
}

// Where no connection can be made, everybody hears why, in the server's words.
func TestPipelineWithoutAConnection(t *testing.T) {
	s, admin := own(t)
	must(t, admin.ConfigSet(t.Context(), "requirepass", "new").Err())
	d := driverOn(t, client(t, "redis://:old@"+s.Addr()), freshPrefix())
	d.convoy.flying = maxFlying
	var all sync.WaitGroup
	for i := range 3 {
		a := d.bid(fmt.Sprint("x", i), long)
		a.token = 1
		call := func() error { return a.Release(t.Context()) }
		if i < 2 {
			call = func() error { return second(a.Try(t.Context())) }
		}
		all.Go(func() {
			if err := call(); !redis.HasErrorPrefix(err, "WRONGPASS") {
				t.Errorf("a request with a password that is no longer right: %v, want the server's answer", err)
			}
		})
		inLine(t, d, i+1)
	}
	d.convoy.next()
	all.Wait()
}
