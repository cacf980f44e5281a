package etcdlock

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
)

func TestMain(m *testing.M) { harness.Main(m, openURL) }

func openURL(ctx context.Context, url, namespace string) (distlock.Locker, error) {
	return Open(ctx, url, &Options{Prefix: namespace})
}

func TestConformance(t *testing.T) {
	h := harness.New(t, servers.Etcd, openURL)
	conformance.Run(t, inspected{h, newClient(t, h.Addr())}, harness.Pinned(h.Server, "fence/over-cleanup", "isolate/stuck-name", "isolate/stuck-holder"))
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
