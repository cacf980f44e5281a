package servers_test

import (
	"net"
	"os"
	"testing"

	"github.com/distlock-go/distlock/internal/servers"
)

// An ensemble serves while one of three members is killed, and takes it back.
func TestEnsemble(t *testing.T) {
	for _, kind := range []servers.Kind{servers.ZooKeeper, servers.Etcd} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			e := servers.EnsembleForTest(t, kind, 3, servers.Setup{})
			members := e.Members
			if kind == servers.ZooKeeper { // which takes seconds to start; the members are alike
				members = servers.Sample(1, members...)
			}
			for _, s := range members {
				if err := s.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := s.Restart(t.Context()); err != nil { // ready when a majority is
					t.Fatal(err)
				}
			}
		})
	}
}

// A leader that is cut off from the others is replaced, and one of the majority again when the links are back. Clients have
// a port for TLS.
//
// On ZooKeeper that takes three JVMs and two elections, so only make topologies does it.
func TestCut(t *testing.T) {
	kinds := []servers.Kind{servers.Etcd}
	if os.Getenv("DISTLOCK_CHAOS_EVENTS") != "" {
		kinds = append(kinds, servers.ZooKeeper)
	}
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			e := servers.EnsembleForTest(t, kind, 3, servers.Setup{Links: true, TLS: true})
			old, err := e.Leader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			e.Cut(old)
			if _, err := e.Leader(t.Context(), old); err != nil {
				t.Fatal(err)
			}
			e.Heal(old)
			if err := old.Restart(t.Context()); err != nil { // ready when it is one of the majority
				t.Error(err)
			}
			secure, _ := e.TLSAddrs()
			for _, addr := range append(e.Addrs(), secure...) {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				conn.Close()
			}
		})
	}
}
