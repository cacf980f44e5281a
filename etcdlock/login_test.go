package etcdlock

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
)

// The login of a stream runs out. The server refuses each new watch on it from then on,
// so there has to be a new stream.
func TestShortLogin(t *testing.T) {
	key := t.TempDir() + "/key"
	if err := os.WriteFile(key, []byte("some secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := servers.EnsembleForTest(t, servers.Etcd, 1, servers.Setup{Extra: []string{
		"--auth-token=jwt,sign-method=HS256,ttl=1s,priv-key=" + key, "--bcrypt-cost=4",
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	admin := newClient(t, e.Addrs()[0])
	for _, step := range []func() error{
		func() error { _, err := admin.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := admin.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	config, opts, err := parse(strings.Replace(e.URL(), "://", "://root:secret@", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dial(ctx, config, opts.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	st, err := newDriver(client, opts.Prefix, true)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var other watch // keeps the stream open
	if !other.begin(ctx, st, "y") {
		t.Fatal("no watch can begin")
	}
	defer other.end()
	for refused := false; ; time.Sleep(10 * time.Millisecond) {
		var w watch
		began := w.begin(ctx, st, "x")
		w.end()
		if began && refused {
			break
		}
		refused = refused || !began
		if ctx.Err() != nil {
			t.Fatalf("no watch begins again after the login has run out (has it? %t)", refused)
		}
	}
}
