package peers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/redislock"
)

var bareScripts = Contender{
	Name: "bare: our two scripts", Backend: servers.Redis, Role: Bare, Module: "github.com/redis/go-redis/v9",
	Note: "The EVALSHAs of distlock's driver, recorded from it and sent by go-redis alone, with a new owner each time: what is left to distlock is the portable half and the driver. In parallel each is a request of its own, while the driver sends some together.",
	Open: openScripts,
}

type scriptsClient struct {
	*goredis.Client
	take, free template
}

func openScripts(ctx context.Context, t Target) (Client, error) {
	o, err := goredis.ParseURL(t.URLs[0])
	if err != nil {
		return nil, err
	}
	c := &scriptsClient{Client: goredis.NewClient(o)}
	if err := c.record(ctx, t); err != nil {
		return nil, errors.Join(err, c.Client.Close())
	}
	return c, nil
}

// record learns from ours, on a connection of its own, what it sends.
func (c *scriptsClient) record(ctx context.Context, t Target) (err error) {
	o := *c.Options()
	o.ContextTimeoutEnabled = true
	client := goredis.NewClient(&o)
	sent := new(recorder)
	client.AddHook(sent)
	l, err := redislock.New(client, &redislock.Options{Options: distlock.Options{TTL: t.TTL}})
	if err != nil {
		return errors.Join(err, client.Close())
	}
	defer func() { err = errors.Join(err, l.Close(), client.Close()) }()
	was := blanks{name: "bench-recorded-" + newOwner()}
	// Twice: the first time, the server may have to be sent the scripts.
	for range 2 {
		sent.clear()
		lock, err := l.Lock(ctx, was.name)
		if err != nil {
			return err
		}
		if err := lock.Unlock(ctx); err != nil {
			return err
		}
		was.token = strconv.FormatInt(lock.Token(), 10)
	}
	requests := sent.all()
	if len(requests) != 2 || requests[0][0] != "evalsha" || requests[1][0] != "evalsha" {
		return fmt.Errorf("a lock and unlock is no longer two EVALSHAs, but %v", requests)
	}
	if was.owner = ownerIn(requests[0]); was.owner == "" {
		return fmt.Errorf("no owner is in %v", requests[0])
	}
	c.take, c.free = newTemplate(requests[0], was), newTemplate(requests[1], was)
	return nil
}

func (c *scriptsClient) Lock(ctx context.Context, name string) (Held, error) {
	b := &blanks{name: name, owner: newOwner()}
	token, err := c.Do(ctx, c.take.fill(b)...).Int64()
	if err == nil && token <= 0 {
		err = fmt.Errorf("the script that takes a lock returned %d", token)
	}
	if err != nil {
		return nil, err
	}
	b.token = strconv.FormatInt(token, 10)
	return bareHeld(func(ctx context.Context) error {
		held, err := c.Do(ctx, c.free.fill(b)...).Int64()
		return refused(held == 1, err)
	}), nil
}

// recorder keeps the arguments of all commands.
type recorder struct {
	mu   sync.Mutex
	sent [][]any
}

var _ goredis.Hook = (*recorder)(nil)

func (r *recorder) add(cmds ...goredis.Cmder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cmd := range cmds {
		r.sent = append(r.sent, cmd.Args())
	}
}

func (r *recorder) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = nil
}

func (r *recorder) all() [][]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent
}

// DialHook implements redis.Hook.
func (r *recorder) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (r *recorder) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		r.add(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (r *recorder) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		r.add(cmds...)
		return next(ctx, cmds)
	}
}
