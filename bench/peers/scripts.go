package peers

import (
	"context"
	"errors"
	"fmt"
	"strconv"

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
	o, err := goredis.ParseURL(t.URLs[0])
	if err != nil {
		return err
	}
	o.ContextTimeoutEnabled = true
	client := goredis.NewClient(o)
	defer func() { err = errors.Join(err, client.Close()) }()
	var sent commandRecorder
	client.AddHook(&sent)
	l, err := redislock.New(client, &redislock.Options{Options: distlock.Options{TTL: t.TTL}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	was := blanks{name: recordedName()}
	take, free, token, err := sent.lockUnlock(ctx, l, was.name)
	if err != nil {
		return err
	}
	if was.owner, was.token = ownerIn(take), strconv.FormatInt(token, 10); was.owner == "" {
		return errNoOwner
	}
	c.take, c.free = newTemplate(take, was), newTemplate(free, was)
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

// commandRecorder records the arguments of commands.
type commandRecorder struct{ recorder[[]any] }

var _ goredis.Hook = (*commandRecorder)(nil)

// DialHook implements redis.Hook.
func (r *commandRecorder) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (r *commandRecorder) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		r.add(cmd.Args())
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (r *commandRecorder) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		for _, cmd := range cmds {
			r.add(cmd.Args())
		}
		return next(ctx, cmds)
	}
}
