package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/place"
)

// NewTarget returns the target behind a URL, confined to a place of its own: a
// prefix, table or node with a random name, which Clean removes. Nothing is sent
// until the run begins. The TTL is what the locks of the run will ask for.
func NewTarget(name, rawURL, origin, version string, ttl time.Duration) (Target, error) {
	p, err := place.New(rawURL, "compare")
	if err != nil {
		return Target{}, err
	}
	// Told when it opens, because the session of ZooKeeper must suit it; unless the
	// URL tells another.
	config := backends.Config{TTL: backends.Duration(ttl)}
	if p.Has("ttl") {
		config.TTL = 0
	}
	t := Target{Name: name, Store: p.Store, URL: openurl.Redact(rawURL), Origin: origin, Version: version, Place: p.What}
	t.Addr, t.NoRoute = p.Addr()
	t.Locate = p.URL
	s := &shared{place: p}
	t.Rig = newRig(s)
	t.OpenVia = func(ctx context.Context, via string) (distlock.Locker, error) {
		c := config
		c.URL = p.URL(via)
		l, err := c.Open(ctx)
		if err == nil {
			s.used.Store(true)
		}
		return l, err
	}
	t.Open = func(ctx context.Context) (distlock.Locker, error) { return t.OpenVia(ctx, "") }
	if p.Store == "" {
		t.Version = cmp.Or(version, Version()) // it is part of the program
		return t, nil
	}
	t.Bare, t.Remove = s.open, s.remove
	return t, nil
}

// shared is the one connection to a place besides those of the Lockers. What makes a
// place must also remove it: only the maker knows what was there before.
type shared struct {
	place *place.Place
	used  atomic.Bool // something may be there
	mu    sync.Mutex
	bare  place.Client
}

// errUnused says that there is nothing to remove.
var errUnused = errors.New("it could not be opened")

func (s *shared) open(ctx context.Context) (place.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bare != nil {
		return s.bare, nil
	}
	b, err := s.place.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("the bare client: %w", err)
	}
	s.bare = b
	if s.place.MadeByOpen() {
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

// take returns what open has opened, and forgets it.
func (s *shared) take() place.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bare
	s.bare = nil
	return b
}

// removePatience is for one store to remove a place: a handful of requests, or many
// where a large database must be searched for keys.
const removePatience = 10 * time.Second

// Clean removes what the run has made on the targets, all at the same time, and notes
// in the report what that was and whether it is gone; what could not be removed counts
// as a failure. Nothing of the run may use the targets any more. It works although the
// context of the run has ended.
func Clean(targets []Target, r *Report) {
	var wg sync.WaitGroup
	for i, t := range targets {
		if t.Remove == nil {
			continue
		}
		b := r.Backends[i]
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), removePatience)
			defer cancel()
			switch err := t.Remove(ctx); {
			case errors.Is(err, errUnused):
				b.Touched = "nothing: " + err.Error()
			case err != nil:
				b.Touched = fmt.Sprintf("only %s (NOT removed)", t.Place)
				b.Failed["clean"] = fmt.Sprintf("the run has left %s behind: %v", t.Place, err)
			default:
				b.Touched = fmt.Sprintf("only %s (removed)", t.Place)
			}
		})
	}
	wg.Wait()
}
