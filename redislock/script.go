package redislock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// script is a Lua script and the digest by which a server knows it, once it has
// seen it.
type script struct{ source, digest string }

func newScript(source string) script {
	source = strings.Replace(source, "-- include grant.lua\n", grantLua, 1)
	source = strings.Replace(source, "-- include queue.lua\n", queueLua, 1)
	return script{source, redis.NewScript(source).Hash()}
}

var (
	//go:embed queue.lua
	queueLua string
	//go:embed grant.lua
	grantLua string
	//go:embed try.lua
	tryLua string
	//go:embed release.lua
	releaseLua string
	//go:embed renew.lua
	renewLua string
	//go:embed break.lua
	breakLua string
	//go:embed inspect.lua
	inspectLua string

	tryScript     = newScript(tryLua)
	releaseScript = newScript(releaseLua)
	renewScript   = newScript(renewLua)
	breakScript   = newScript(breakLua)
	inspectScript = newScript(inspectLua)
)

// command is one run of a script. It overrides NoRetry, which go-redis asks when an
// attempt has failed, before it sends the command again by itself (three times, by
// default): some must not be sent again, and of others one has to know that they
// were, because the earlier one may still be under way.
type command struct {
	*redis.Cmd
	once   bool // not to be sent again
	failed int  // how many attempts have
}

var _ redis.Cmder = (*command)(nil)

// NoRetry implements redis.Cmder.
func (c *command) NoRetry() bool {
	c.failed++
	return c.once
}

// run runs s, and sends its source if the server does not know it: the cache of
// scripts is lost with a restart, a fail-over or SCRIPT FLUSH. It reports whether
// that was the only request; if not, an earlier one may have been applied unseen, or
// may yet arrive, and so may this one if it failed.
func (d *driver) run(ctx context.Context, s script, once bool, keys []string, args ...any) (cmd *redis.Cmd, only bool, err error) {
	c := newCommand(ctx, "evalsha", s.digest, once, keys, args)
	err = d.client.Process(ctx, c)
	failed := c.failed
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		c = newCommand(ctx, "eval", s.source, once, keys, args)
		err = d.client.Process(ctx, c)
		// The refusal has counted as a failure in a plain client, not in a
		// cluster's; it is none, since nothing was run.
		failed = max(failed-1, 0) + c.failed
	}
	return c.Cmd, failed == 0, fault(ctx, err)
}

// runTogether is run for requests that many send at the same time: it lets them share
// pipelines. On a cluster it does not, because a server that does not answer would
// hold up the requests to the others.
func (d *driver) runTogether(ctx context.Context, s script, once bool, keys []string, args ...any) (*redis.Cmd, bool, error) {
	if d.cluster != nil {
		return d.run(ctx, s, once, keys, args...)
	}
	c := newCommand(ctx, "evalsha", s.digest, once, keys, args)
	along, err := d.convoy.process(ctx, c)
	var answer redis.Error
	switch {
	case err == nil:
		return c.Cmd, along || c.failed == 0, nil
	case ctx.Err() != nil:
		return nil, false, fault(ctx, err) // the request may be on its way with others
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		cmd, only, err := d.run(ctx, s, once, keys, args...)
		return cmd, only && (along || c.failed <= 1), err
	case !along || once && errors.As(err, &answer):
		return c.Cmd, c.failed == 0, fault(ctx, err)
	case once:
		// Not the error of another's context, which the caller has never seen.
		return c.Cmd, false, fmt.Errorf("redislock: sent together with others: %v", err)
	}
	// What go-redis would have sent again by itself, had it been alone.
	cmd, _, err := d.run(ctx, s, once, keys, args...)
	return cmd, false, err
}

// execute sends what is in pipe. Each command has its own error then, also where the
// server has refused the connection: go-redis takes that for the answer to one of them
// and leaves all without any.
func execute(ctx context.Context, pipe redis.Pipeliner) {
	cmds, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if c, ok := cmd.(interface{ Val() any }); ok && c.Val() == nil && cmd.Err() == nil {
			cmd.SetErr(err)
		}
	}
}

func newCommand(ctx context.Context, name, what string, once bool, keys []string, args []any) *command {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, what, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	return &command{Cmd: cmd, once: once}
}

// fault returns the error of a request as the caller should see it. Where the
// context ends a request in flight, go-redis returns the error of the socket.
func fault(ctx context.Context, err error) error {
	var answer redis.Error
	if err == nil || errors.As(err, &answer) {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The deadline of the socket may come before the timer of the context.
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return err
}

// millis rounds up: what Redis keeps must never be shorter than what was asked for.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
