package peers

import (
	"context"
	"net/url"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/servers"
)

// Distlock is the name of the contender that is this library.
const Distlock = "distlock"

func ours(backend servers.Kind) Contender {
	return Contender{
		Name: Distlock, Backend: backend, Role: Ours, Module: "github.com/distlock-go/distlock",
		Open: openDistlock,
	}
}

func openDistlock(ctx context.Context, t Target) (Client, error) {
	u, err := url.Parse(t.URLs[0])
	if err != nil {
		return nil, err
	}
	q := u.Query()
	q.Set("ttl", t.TTL.String())
	if u.Scheme == "mysql" {
		q.Set("create", "true")
	}
	u.RawQuery = q.Encode()
	l, err := backends.Open(ctx, u.String())
	if err != nil {
		return nil, err
	}
	return &distlockClient{l}, nil
}

type distlockClient struct{ distlock.Locker }

type distlockHeld struct{ distlock.Lock }

func (c *distlockClient) Lock(ctx context.Context, name string) (Held, error) {
	l, err := c.Locker.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return distlockHeld{l}, nil
}

func (h distlockHeld) Lost() bool { return h.Err() != nil }
