package etcdlock

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/etcdlock/internal/member"
	"github.com/distlock-go/distlock/internal/harness"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// A learner among the endpoints gets half of the requests, and refuses them all. No
// call of a Locker of Open fails for it, nor does a keep-alive.
func TestLearner(t *testing.T) {
	t.Parallel()
	e := servers.EnsembleForTest(t, servers.Etcd, 1, servers.Setup{})
	ctx := context.WithoutCancel(t.Context())
	testkit.Must(t, e.AddLearner(ctx))
	l, err := Open(ctx, e.URL(), nil)
	testkit.Must(t, err)
	defer l.Close()
	for range 10 {
		harness.Exercise(t, l, "x")
	}
	keepsAlive(ctx, t, e.URL())
}

// keepsAlive sends keep-alives as a Locker at url does.
func keepsAlive(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	st := dialed(ctx, t, url)
	defer st.Close()
	lease, err := st.client.Grant(ctx, 60)
	testkit.Must(t, err)
	for range 10 {
		err := errDeposed
		for err != nil && fate(err) == driver.Again {
			_, err = member.KeepAlive(ctx, st.granter, lease.ID, grpc.WaitForReady(true))
		}
		if err != nil {
			t.Fatal("a keep-alive:", err)
		}
	}
}
