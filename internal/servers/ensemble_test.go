package servers_test

import (
	"context"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
)

// An ensemble serves while one of three members is killed, and takes it back.
func TestEnsemble(t *testing.T) {
	for _, kind := range []servers.Kind{servers.ZooKeeper, servers.Etcd} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			e := servers.EnsembleForTest(t, kind, 3)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for _, s := range e.Members {
				if err := s.Kill(ctx); err != nil {
					t.Fatal(err)
				}
				if err := s.Restart(ctx); err != nil { // ready when a majority is
					t.Fatal(err)
				}
			}
		})
	}
}
