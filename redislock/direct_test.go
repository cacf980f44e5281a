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

	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"

	"github.com/distlock-go/distlock/internal/testkit"
)

// directOn returns a driver. Its callers send their requests themselves, by connections that
// pass the proxy.
func directOn(t *testing.T) (*store, *netfault.TCPProxy) {
	t.Helper()
	c, p := via(t, server(t))
	d := driverOn(t, c, freshPrefix())
	o := *c.Options()
	o.ReadTimeout = time.Minute // nothing here is to end by it
	d.sender.SendDirectly(&o)
	return d, p
}

// One caller uses one connection, and uses it again.
func TestDirectRequestsShareAConnection(t *testing.T) {
	t.Parallel()
	d, p := directOn(t)
	for range 3 {
		c := d.tryOnly("x", long)
		grants(t, c)
		releases(t, c)
	}
	if n := p.Connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	testkit.Must(t, d.Close())
	testkit.Until(t, "Close has closed the connection", func() bool { return p.Connections() == 0 })
}

// A caller that leaves does not wait for a server that says nothing. The next one uses another
// connection, and that of the first is closed.
func TestDirectRequestIsInterrupted(t *testing.T) {
	t.Parallel()
	d, p := directOn(t)
	warm := d.tryOnly("x", long)
	grants(t, warm)
	releases(t, warm)
	for i := range 3 {
		p.HoldRequest(1)
		ctx, cancel := context.WithCancel(t.Context())
		c := d.tryOnly("x", long)
		left := make(chan error, 1)
		go func() { _, err := c.Try(ctx); left <- err }()
		testkit.Until(t, "the request is under way", func() bool { return p.Fired() == i+1 })
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) || !c.ambiguous {
			t.Errorf("a cancelled Try: %v, ambiguous %v", err, c.ambiguous)
		}
		p.Release()
		releases(t, c)
		grants(t, warm)
		releases(t, warm)
		testkit.Until(t, "one connection is left", func() bool { return p.Connections() == 1 })
	}
	c := d.tryOnly("x", long)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Try(ended); !errors.Is(err, context.Canceled) || driver.FateOf(err) != driver.NotSent || c.ambiguous {
		t.Errorf("a Try with an ended context: %v (%v), ambiguous %v", err, driver.FateOf(err), c.ambiguous)
	}
}

// What comes while direct requests hang does not wait for them.
func TestNobodyWaitsForDirectRequestsThatHang(t *testing.T) {
	t.Parallel()
	d, p := directOn(t)
	ctx, cancel := context.WithCancel(t.Context())
	var hanging sync.WaitGroup
	for i := range endpoint.MaxPipelines {
		p.HoldRequest(1)
		hanging.Go(func() { _, _ = d.tryOnly(fmt.Sprint("hangs", i), long).Try(ctx) })
		testkit.Until(t, "the request is under way", func() bool { return p.Fired() == i+1 })
	}
	c := d.tryOnly("x", long)
	grants(t, c)
	releases(t, c)
	cancel()
	hanging.Wait()
	p.Release()
	grants(t, c)
	releases(t, c)
}

// A direct request connects again as often as one by the pool does. It so outlives a server that
// restarts.
func TestDirectRequestConnectsAgain(t *testing.T) {
	t.Parallel()
	s := server(t)
	n := new(network)
	c := client(t, s.URL())
	d := driverOn(t, c, freshPrefix())
	o := *c.Options()
	o.DialerRetries = 1
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := n.dial(ctx, network, addr)
		if err != nil {
			err = &net.OpError{Op: "dial", Err: err} // go-redis tries no other again
		}
		return conn, err
	}
	d.sender.SendDirectly(&o)
	for range 2 {
		n.set(true)
		if _, err := d.tryOnly("x", long).Try(t.Context()); !errors.Is(err, errDown) || n.failed() != 1+o.MaxRetries {
			t.Errorf("Try: %v after %d attempts to connect, want %d", err, n.failed(), 1+o.MaxRetries)
		}
		n.set(false)
		after := d.tryOnly("x", long)
		grants(t, after)
		releases(t, after)
	}
}

// A caller that leaves ends its attempt to connect. Many such callers would otherwise open
// sockets without bound.
func TestDirectRequestLeavesNoDial(t *testing.T) {
	t.Parallel()
	c := client(t, server(t).URL())
	d := driverOn(t, c, freshPrefix())
	var begun, dialing atomic.Int32
	o := *c.Options()
	o.DialTimeout = time.Minute
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		begun.Add(1)
		dialing.Add(1)
		defer dialing.Add(-1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	d.sender.SendDirectly(&o)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { _, err := d.tryOnly("x", long).Try(ctx); left <- err }()
	testkit.Until(t, "it connects", func() bool { return begun.Load() == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled Try: %v", err)
	}
	testkit.Until(t, "the attempt to connect has ended", func() bool { return dialing.Load() == 0 })
}
