package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// peer is one store's smallest proof of life and of memory.
type peer interface {
	put(ctx context.Context, value string) error
	get(ctx context.Context) (string, error)
	close()
}

var peers = map[Kind]func(s *Server) (peer, error){
	Redis:     newRedisClient,
	MySQL:     newMySQLClient,
	Postgres:  newPostgresClient,
	ZooKeeper: newZooKeeperClient,
	Etcd:      newEtcdClient,
}

func TestLocal(t *testing.T) {
	only(t, "local")
	for _, kind := range Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			testLife(t, kind, "local process ")
		})
	}
}

func TestContainer(t *testing.T) {
	only(t, "container")
	for _, kind := range Kinds {
		t.Run(string(kind), func(t *testing.T) {
			testLife(t, kind, "container "+recipes[kind].image)
		})
	}
}

// only leaves one way to start servers. DISTLOCK_REQUIRE demands a server, not each way to one: a test of the other way
// than the one DISTLOCK_SERVERS asks for (or, for auto, than the local one that "make servers" installs) may skip.
func only(t *testing.T, way string) {
	t.Helper()
	asked := os.Getenv("DISTLOCK_SERVERS")
	if asked == "" || asked == "auto" {
		asked = "local"
	}
	if asked != way {
		t.Setenv("DISTLOCK_REQUIRE", "")
	}
	t.Setenv("DISTLOCK_SERVERS", way)
	for _, kind := range Kinds {
		t.Setenv(kind.EnvURL(), "")
	}
}

// testLife takes a server through everything that the fault checks do to one.
func testLife(t *testing.T, kind Kind, origin string) {
	ctx := t.Context()
	s := ForTest(t, kind)
	if !strings.HasPrefix(s.Origin(), origin) || !s.Controlled() || s.Kind() != kind || s.Version() == "" {
		t.Fatalf("got origin %q, controlled %v, kind %q, version %q; want origin %q and a version",
			s.Origin(), s.Controlled(), s.Kind(), s.Version(), origin)
	}
	if host, _, err := net.SplitHostPort(s.Addr()); err != nil || host != "127.0.0.1" {
		t.Fatalf("address %q is not on 127.0.0.1", s.Addr())
	}
	if b, ok := s.ctl.(*box); ok {
		wantLoopback(t, b)
	}
	wantAdmin(t, s)
	_, local := s.ctl.(*process)
	if (s.PID() != 0) != local {
		t.Fatalf("the process ID is %d, of a local process: %v", s.PID(), local)
	}
	value := rand.Text()
	within(t, s, func(ctx context.Context, c peer) error { return c.put(ctx, value) })

	t.Run("paused", func(t *testing.T) { testPause(t, s, value) })

	fates := []string{"running", "paused"}
	if kind != Redis && kind != Etcd { // which start at once
		fates = Sample(1, fates...)
	}
	for _, fell := range fates {
		t.Run("killed while "+fell, func(t *testing.T) {
			if fell == "paused" {
				must(t, s.Pause(ctx))
			}
			must(t, s.Kill(ctx))
			must(t, s.Kill(ctx)) // killing twice is one kill
			wantClosed(t, s.Addr())
			if s.PID() != 0 {
				t.Fatalf("a killed server has the process ID %d", s.PID())
			}
			if s.Pause(ctx) == nil || s.Resume(ctx) == nil {
				t.Fatal("a killed server can be paused or resumed")
			}
			addr := s.Addr()
			must(t, s.Restart(ctx))
			if s.Addr() != addr {
				t.Fatalf("moved from %s to %s", addr, s.Addr())
			}
			wantValue(t, s, value)
		})
	}
	t.Run("closed while paused", func(t *testing.T) { testClose(t, s) })
}

func testPause(t *testing.T, s *Server, value string) {
	c, err := peers[s.kind](s)
	must(t, err)
	defer c.close()
	must(t, s.Pause(t.Context()))
	must(t, s.Pause(t.Context()))
	// The wait can only hide a server that answers late, not fail a frozen one.
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if got, err := c.get(ctx); err == nil {
		t.Fatalf("a paused server answered %q", got)
	}
	must(t, s.Resume(t.Context()))
	must(t, s.Resume(t.Context()))
	wantValue(t, s, value)
}

func testClose(t *testing.T, s *Server) {
	var folder string
	switch ctl := s.ctl.(type) {
	case *process:
		folder = ctl.folder.path
	case *box:
		folder = ctl.folder.path
	}
	sweep(t.Context())
	if _, err := os.Stat(folder); err != nil {
		t.Fatalf("the folder of a living server was swept: %v", err)
	}
	must(t, s.Pause(t.Context()))
	must(t, s.Close())
	must(t, s.Close())
	wantClosed(t, s.Addr())
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("folder %s is still there (%v)", folder, err)
	}
	if b, ok := s.ctl.(*box); ok {
		if containerThere(t, b) {
			t.Fatal("the container is still there")
		}
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Fatal("a closed server was restarted")
	}
}

// wantLoopback checks what a stranger on the network could reach, and that leftovers can be found.
func wantLoopback(t *testing.T, b *box) {
	t.Helper()
	state, err := b.container.Inspect(t.Context())
	must(t, err)
	published := 0
	for inside, bindings := range state.NetworkSettings.Ports {
		for _, binding := range bindings {
			published++
			if !binding.HostIP.IsLoopback() {
				t.Errorf("port %v is published on %v", inside, binding.HostIP)
			}
		}
	}
	if published != 1 {
		t.Errorf("%d ports are published, want 1", published)
	}
	if state.Config.Labels[ContainerLabel] == "" {
		t.Errorf("the container has no label %s", ContainerLabel)
	}
}

// wantAdmin checks the rights of users on MySQL; the other stores have one user here, or none.
func wantAdmin(t *testing.T, s *Server) {
	t.Helper()
	if s.kind != MySQL {
		if s.AdminURL() != "" {
			t.Errorf("%s has an admin: %s", s.kind, s.AdminURL())
		}
		return
	}
	createUser := func(ctx context.Context, url string) error {
		e, err := parseEndpoint(url, "3306")
		must(t, err)
		c, err := newMySQLClient(&Server{url: e})
		must(t, err)
		defer c.close()
		_, err = c.(mysqlClient).ExecContext(ctx, "CREATE USER other IDENTIFIED BY 'other'")
		return err
	}
	if err := createUser(t.Context(), s.AdminURL()); err != nil {
		t.Errorf("the admin cannot create a user: %v", err)
	}
	if err := createUser(t.Context(), s.URL()); err == nil {
		t.Error("the ordinary user can create users")
	}
	for _, user := range []string{"root", "", "mysql"} {
		e := s.url
		e.userinfo = user
		if err := createUser(t.Context(), e.String()); err == nil {
			t.Errorf("user %q needs no password", user)
		}
	}
}

// containerThere reports whether the engine still knows the container.
func containerThere(t *testing.T, b *box) bool {
	_, err := b.container.Inspect(t.Context())
	return err == nil
}

// TestGiven uses a local server as if somebody else ran it.
func TestGiven(t *testing.T) {
	only(t, "local")
	kinds := Sample(2, Kinds...) // they differ in nothing but how they are asked for their version
	skipWithout(t, kinds...)
	started := map[Kind]*Server{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, kind := range kinds {
		wg.Go(func() {
			s, err := Start(t.Context(), kind)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { must(t, s.Close()) })
			mu.Lock()
			defer mu.Unlock()
			started[kind] = s
		})
	}
	wg.Wait()
	for kind, theirs := range started {
		t.Run(string(kind), func(t *testing.T) {
			t.Setenv(kind.EnvURL(), theirs.URL())
			s := ForTest(t, kind)
			if s.Origin() != "given URL" || s.URL() != theirs.URL() || s.Addr() != theirs.Addr() || s.Version() != theirs.Version() {
				t.Fatalf("got %q at %s, version %q; want a given URL at %s, version %q",
					s.Origin(), s.Addr(), s.Version(), theirs.Addr(), theirs.Version())
			}
			for name, do := range map[string]func(context.Context) error{
				"Pause": s.Pause, "Resume": s.Resume, "Kill": s.Kill, "Restart": s.Restart,
			} {
				if err := do(t.Context()); !errors.Is(err, ErrNoControl) {
					t.Errorf("%s: got %v, want ErrNoControl", name, err)
				}
			}
			must(t, s.Close())
			within(t, theirs, func(ctx context.Context, c peer) error { return c.put(ctx, "still there") })

			must(t, theirs.Kill(t.Context()))
			if _, err := Start(t.Context(), kind); err == nil || errors.Is(err, ErrUnavailable) {
				t.Errorf("a given URL where nobody answers: got %v, want an error that no test skips over", err)
			}
		})
	}
}

// within runs one exchange on a client of its own, bounded.
func within(t *testing.T, s *Server, do func(context.Context, peer) error) {
	t.Helper()
	c, err := peers[s.kind](s)
	must(t, err)
	defer c.close()
	must(t, do(t.Context(), c))
}

func wantValue(t *testing.T, s *Server, want string) {
	t.Helper()
	within(t, s, func(ctx context.Context, c peer) error {
		got, err := c.get(ctx)
		if err == nil && got != want {
			err = fmt.Errorf("got %q, want %q as written before", got, want)
		}
		return err
	})
}

func wantClosed(t *testing.T, addr string) {
	t.Helper()
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Fatalf("%s still takes connections", addr)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
