package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// ForTest is [Start] for a test: the server is closed when the test ends. Where nothing can be had the test is
// skipped, unless DISTLOCK_REQUIRE (a comma-separated list of kinds, or "all") names the kind: then it fails. A server
// found here that does not start always fails the test.
func ForTest(t testing.TB, kind Kind) *Server {
	t.Helper()
	return forTest(t, kind, Start)
}

func forTest(t testing.TB, kind Kind, start func(context.Context, Kind) (*Server, error)) *Server {
	t.Helper()
	must, err := required(os.Getenv("DISTLOCK_REQUIRE"), kind)
	if err != nil {
		t.Fatal(err)
	}
	// Not t.Context(): it ends before the clean-ups run, and they may still restart a server.
	s, err := start(context.WithoutCancel(t.Context()), kind)
	if errors.Is(err, ErrUnavailable) && !must {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%s %s at %s, %s", kind, s.Version(), s.Addr(), s.Origin())
	if s.Note() != "" {
		t.Log(s.Note())
	}
	return s
}

// Required reports whether DISTLOCK_REQUIRE names a kind of server: then it must not be missing.
func (k Kind) Required() bool {
	must, err := required(os.Getenv("DISTLOCK_REQUIRE"), k)
	return must || err != nil
}

// required reads a list such as "redis,etcd". An unknown name is an error: a misspelt one would let a whole suite be
// skipped in silence.
func required(list string, kind Kind) (bool, error) {
	must := false
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "":
		case name == "all", name == string(kind):
			must = true
		case recipes[Kind(name)].kind == "":
			return false, fmt.Errorf("servers: DISTLOCK_REQUIRE names %q: allowed are all and %v", name, Kinds)
		}
	}
	return must, nil
}

// Shared is one server for all tests of a package, started by the first that asks: a start takes longer than most tests
// do. It is safe for concurrent use.
type Shared struct {
	Kind Kind

	once   sync.Once
	server *Server
	err    error
}

// ForTest returns the server. Where nothing can be had the test is skipped, unless DISTLOCK_REQUIRE is set: then it fails.
func (s *Shared) ForTest(t testing.TB) *Server {
	t.Helper()
	s.once.Do(func() { s.server, s.err = Start(context.Background(), s.Kind) })
	if errors.Is(s.err, ErrUnavailable) && os.Getenv("DISTLOCK_REQUIRE") == "" {
		t.Skip(s.err)
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.server
}

// Close closes the server if it was started. It is called when the tests are over.
func (s *Shared) Close() error {
	if s.server == nil {
		return nil // the tests have said why
	}
	return s.server.Close()
}
