package etcdlock

import (
	"context"
	"flag"
	"strconv"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
)

// Most of what the tests do is to wait, for servers and for leases to end. So many more
// run side by side than there are processors.
const sideBySide = 32

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", strconv.Itoa(sideBySide)) // the command line still overrides it
	harness.Main(m, openURL)
}

func openURL(ctx context.Context, url, namespace string) (distlock.Locker, error) {
	return Open(ctx, url, &Options{Prefix: namespace})
}

// TestConformance is before all tests that run side by side: the suite measures first how
// fast machine and server are. The checks that must run alone, as they stop the server,
// have a server of their own, so that the others need not wait for them.
func TestConformance(t *testing.T) {
	t.Run("serving", func(t *testing.T) {
		t.Parallel()
		examine(t, func(k conformance.Check) bool { return !k.Alone })
	})
	t.Run("stopping", func(t *testing.T) {
		t.Parallel()
		examine(t, func(k conformance.Check) bool { return k.Alone })
	})
}

// examine runs those checks of the suite that are selected, on a server of their own.
func examine(t *testing.T, selected func(conformance.Check) bool) {
	t.Helper()
	h := harness.New(t, servers.Etcd, openURL)
	o := harness.Pinned(h.Server, "sweep/held", "isolate/stuck-name", "isolate/stuck-holder")
	if o == nil {
		o = new(conformance.Options)
	}
	o.Filter = selected
	harness.Run(t, inspected{h, newClient(t, h.Addr())}, o)
}

// inspected looks into the store without the driver.
type inspected struct {
	*harness.Harness
	client *clientv3.Client
}

// Records implements conformance.Inspector.
func (h inspected) Records(ctx context.Context, name string) (int, error) {
	resp, err := h.client.Get(ctx, queueOf(name), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return int(resp.Count), nil
}

// Waiters implements conformance.Inspector.
func (h inspected) Waiters(ctx context.Context, name string) (int, error) {
	n, err := h.Records(ctx, name)
	return max(n-1, 0), err
}

// Delete implements conformance.Inspector.
func (h inspected) Delete(ctx context.Context, name string) error {
	oldest := append(clientv3.WithFirstCreate(), clientv3.WithPrefix())
	resp, err := h.client.Get(ctx, queueOf(name), oldest...)
	if err != nil || len(resp.Kvs) == 0 {
		return err
	}
	_, err = h.client.Delete(ctx, string(resp.Kvs[0].Key))
	return err
}

func queueOf(name string) string { return (&store{prefix: DefaultPrefix}).queue(name) }
