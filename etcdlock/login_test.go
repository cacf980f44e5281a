package etcdlock

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// The login of a stream is missing, because users came after it, or it runs out. The
// server refuses each new watch on it from then on, so there has to be a new stream.
func TestShortLogin(t *testing.T) {
	t.Parallel()
	key := t.TempDir() + "/key"
	testkit.Must(t, os.WriteFile(key, []byte("some secret"), 0o600))
	e := servers.EnsembleForTest(t, servers.Etcd, 1, servers.Setup{Extra: []string{
		"--auth-token=jwt,sign-method=HS256,ttl=1s,priv-key=" + key, "--bcrypt-cost=4",
	}})
	ctx := context.WithoutCancel(t.Context())
	st := dialed(ctx, t, strings.Replace(e.URL(), "://", "://root:secret@", 1))
	defer st.Close()
	keepsStream := func() {
		var w watch
		testkit.Until(t, "a watch begins", func() bool { began, _ := w.begin(ctx, st, "y"); return began })
		t.Cleanup(w.end)
	}
	beginsAgain := func(what string) {
		begins := func() bool {
			var w watch
			defer w.end()
			began, _ := w.begin(ctx, st, "x")
			return began
		}
		testkit.Until(t, "no watch begins after "+what, func() bool { return !begins() })
		testkit.Until(t, "a watch begins again after "+what, begins)
	}
	keepsStream()
	admin := newClient(t, e.Addrs()[0])
	for _, step := range []func() error{
		func() error { _, err := admin.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := admin.AuthEnable(ctx); return err },
	} {
		testkit.Must(t, step())
	}
	beginsAgain("users were made")
	keepsStream()
	beginsAgain("the login has run out")
}
