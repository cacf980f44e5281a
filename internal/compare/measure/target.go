package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/compare/report"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/sandbox"
)

// Target is one backend to measure.
type Target struct {
	Name    string // "redis"
	Store   string // the kind of server: "redis", "mysql", "zk", "etcd"; empty if none of these
	URL     string // redacted
	Origin  string // "local process redis-server"
	Version string // asked of the server if empty
	Notes   []string
	RunsOwn bool  // the server was started for this run and ends with it: nothing has to be removed there
	PIDs    []int // of the server's processes but for their children, if they are known

	// Patience is how long its first answers may take, 10 s if it is 0.
	Patience time.Duration

	// Open returns a new Locker with connections of its own.
	Open func(ctx context.Context) (distlock.Locker, error)

	// Bare returns the store through its client library alone. It is nil if the
	// backend has no server. The first call makes the sandbox of the run.
	Bare func(ctx context.Context) (sandbox.Client, error)

	// Sandbox is the part of the store that belongs to this run alone, nil if the
	// backend is not reached by a URL. Used must be called when a client has been
	// opened there by other means than Open. Remove removes it; it is nil if nothing
	// outlasts the Lockers. See Clean.
	Sandbox *sandbox.Sandbox
	Used    func()
	Remove  func(ctx context.Context) error
	forget  func() // closes what Bare has opened, and leaves all as it is

	// Addr is the host:port of the server, empty if traffic cannot be led through
	// a proxy; then NoRoute says why.
	Addr    string
	NoRoute error

	// OpenVia is Open by way of the proxy at via, a host:port, where Addr allows it.
	OpenVia func(ctx context.Context, via string) (distlock.Locker, error)
}

// NewTarget returns the target behind a URL, confined to a sandbox: a prefix, table or
// node with a random name. Clean removes it. Nothing is sent until the run begins. ttl
// is the TTL of the run's locks.
func NewTarget(name, rawURL, origin, version string, ttl time.Duration) (Target, error) {
	box, err := sandbox.New(rawURL, "compare")
	if err != nil {
		return Target{}, err
	}
	// Told when it opens, because the session of ZooKeeper must suit it; unless the
	// URL tells another.
	config := backends.Config{TTL: backends.Duration(ttl)}
	if box.Has("ttl") {
		config.TTL = 0
	}
	t := Target{Name: name, Store: box.Store, URL: openurl.Redact(rawURL), Origin: origin, Version: version, Sandbox: box}
	t.Addr, t.NoRoute = box.Addr()
	s := &shared{box: box}
	t.Used = func() { s.used.Store(true) }
	t.OpenVia = func(ctx context.Context, via string) (distlock.Locker, error) {
		c := config
		c.URL = box.URL(via)
		l, err := c.Open(ctx)
		if err == nil {
			t.Used()
		}
		return l, err
	}
	t.Open = func(ctx context.Context) (distlock.Locker, error) { return t.OpenVia(ctx, "") }
	if box.Store != "" {
		t.Bare, t.Remove, t.forget = s.open, s.remove, s.forget
	}
	return t, nil
}

// shared is the one connection to a sandbox besides those of the Lockers. What makes a
// sandbox must also remove it: only the maker knows what was there before.
type shared struct {
	box  *sandbox.Sandbox
	used atomic.Bool // something may be there
	mu   sync.Mutex
	bare sandbox.Client
}

// errUnused says that there is nothing to remove.
var errUnused = errors.New("it could not be opened")

func (s *shared) open(ctx context.Context) (sandbox.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bare != nil {
		return s.bare, nil
	}
	b, err := s.box.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("the bare client: %w", err)
	}
	s.bare = b
	if s.box.MadeByOpen() {
		s.used.Store(true)
	}
	return b, nil
}

func (s *shared) remove(ctx context.Context) error {
	used := s.used.Load()
	b := s.take()
	if !used {
		if b != nil {
			_ = b.Close() // it has not been used either
		}
		return errUnused
	}
	if b == nil {
		var err error
		if b, err = s.open(ctx); err != nil {
			return err
		}
		s.take()
	}
	return errors.Join(b.Remove(ctx), b.Close())
}

func (s *shared) forget() {
	if b := s.take(); b != nil {
		_ = b.Close() // of a server that is about to end
	}
}

// take returns what open has opened, and forgets it.
func (s *shared) take() sandbox.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bare
	s.bare = nil
	return b
}

// Clean removes what the run has made on the targets, all at the same time. It notes in
// the report what the run made and whether it is gone. What could not be removed is left
// to the user, but for what ends with its server. Nothing of the run may use the targets
// any more. It works although the context of the run has ended.
func Clean(targets []Target, r *report.Report) {
	var wg sync.WaitGroup
	for i, t := range targets {
		if t.Remove == nil {
			continue
		}
		b := r.Backends[i]
		if t.RunsOwn {
			b.Touched = fmt.Sprintf("only %s (ends with the server)", t.Sandbox.What)
			t.forget()
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), sandbox.RemovePatience)
			defer cancel()
			switch err := t.Remove(ctx); {
			case errors.Is(err, errUnused):
				b.Touched = "nothing: " + err.Error()
			case err != nil:
				b.Touched = fmt.Sprintf("only %s (NOT removed)", t.Sandbox.What)
				b.Left = fmt.Sprintf("could not remove %s: delete it by hand: %v", t.Sandbox.What, err)
			default:
				b.Touched = fmt.Sprintf("only %s (removed)", t.Sandbox.What)
			}
		})
	}
	wg.Wait()
}
