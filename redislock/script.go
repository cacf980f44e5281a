package redislock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
)

func newScript(source string) endpoint.Script {
	source = strings.Replace(source, "-- include grant.lua\n", grantLua, 1)
	return endpoint.NewScript(strings.Replace(source, "-- include queue.lua\n", queueLua, 1))
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
	//go:embed probe.lua
	probeLua string

	tryScript     = newScript(tryLua)
	releaseScript = newScript(releaseLua)
	renewScript   = newScript(renewLua)
	breakScript   = newScript(breakLua)
	inspectScript = newScript(inspectLua)
	probeScript   = newScript(probeLua)
)

// command is one request to run a script. go-redis must not send it again by itself: its caller has to know of
// a copy that may have been applied, or may still arrive. The client of a cluster still follows a server to
// another one, which says that it has run nothing.
type command struct{ *redis.Cmd }

func newCommand(ctx context.Context, name, what string, keys []string, args []any) command {
	return command{endpoint.NewCmd(ctx, name, what, keys, args)}
}

// NoRetry implements redis.Cmder.
func (c command) NoRetry() bool { return true }

// SetErr implements redis.Cmder. An answer stays: when its context ends, the client of a cluster
// would write that over the answers that the commands of a pipeline have had.
func (c command) SetErr(err error) {
	if err == nil || c.Val() == nil {
		c.Cmd.SetErr(err)
	}
}

// sender sends a command and waits for its outcome, or for the end of ctx. After that the
// command must not be read.
type sender func(ctx context.Context, cmd redis.Cmder) error

// run runs s. It reports whether an earlier copy of the request may have been applied, or may
// still arrive. Its error is a driver.Fault.
//
//	EVALSHA digest ──▶ answer
//	               ──▶ NOSCRIPT, so nothing has run: EVAL source ──▶ answer
//	               ──▶ no answer: the same again, as often as the client is set to, and resent is true
func (d *store) run(ctx context.Context, send sender, s endpoint.Script, keys []string, args ...any) (answer *redis.Cmd, resent bool, err error) {
	name, what := "evalsha", s.Digest
	pause := driver.Retry{First: 20 * time.Millisecond, Most: 500 * time.Millisecond}
	for left := d.resends; ; {
		cmd := newCommand(ctx, name, what, keys, args)
		err = send(ctx, cmd)
		if err == nil {
			return cmd.Cmd, resent, nil
		}
		if redis.HasErrorPrefix(err, "NOSCRIPT") && name == "evalsha" {
			// The cache of scripts is lost with a restart, a fail-over or SCRIPT FLUSH.
			name, what = "eval", s.Source
			continue
		}
		fate := endpoint.FateOf(err)
		d.doubt(err)
		silent := fate == driver.Unknown || fate == driver.NotSent
		if !silent || left <= 0 || errors.Is(err, redis.ErrClosed) || pause.Pause(ctx) != nil {
			return cmd.Cmd, resent, fault(ctx, err, resent)
		}
		resent = resent || fate == driver.Unknown
		left--
	}
}

// fault says what a call has done that ended with err. Where the context ends a request in
// mid-read, go-redis returns the error of the socket. The deadline of the socket may come before
// the timer of the context. A client stays closed if its owner has closed it.
func fault(ctx context.Context, err error, resent bool) error {
	if err == nil {
		return nil
	}
	f := &driver.Fault{Fate: endpoint.FateOf(err), Err: err}
	if resent {
		f.Fate = driver.Unknown
	}
	deadline, ok := ctx.Deadline()
	switch {
	case endpoint.Answered(err):
	// Before the context: a closed client is final, and a retry is of no use.
	case errors.Is(err, redis.ErrClosed):
		f.Err = fmt.Errorf("%w: %w", distlock.ErrClosed, err)
	case ctx.Err() != nil:
		f.Err = ctx.Err()
	case ok && !time.Now().Before(deadline):
		f.Err = context.DeadlineExceeded
	}
	return f
}

// answers returns the list that a script has answered. Its length is looked at here, so that it may be indexed.
func answers(cmd *redis.Cmd, n int) ([]any, error) {
	if err := cmd.Err(); err != nil {
		return nil, err
	}
	list, ok := cmd.Val().([]any)
	if !ok || len(list) != n {
		return nil, fmt.Errorf("redislock: unexpected answer to a script: %v, want a list of %d", cmd.Val(), n)
	}
	return list, nil
}

// alone sends a command on a connection of its own.
func (d *store) alone(ctx context.Context, cmd redis.Cmder) error {
	_, err := driver.Detach(ctx, func() (any, error) { return nil, d.client.Process(ctx, cmd) })
	return err
}

// batched sends a command together with those of other callers. On a cluster it does not, as a
// server that hangs would delay the requests to the others.
func (d *store) batched(ctx context.Context, cmd redis.Cmder) error {
	if d.cluster != nil {
		return d.alone(ctx, cmd)
	}
	return d.batcher.Do(ctx, cmd)
}

// doubt has the topology of a cluster asked for anew if err is not the answer of a server:
// another may have become the master of the one that does not answer, or has given the slot away.
func (d *store) doubt(err error) {
	if d.cluster != nil && err != nil && (!endpoint.Answered(err) || redis.HasErrorPrefix(err, "MOVED ")) {
		d.cluster.ReloadState(context.Background())
	}
}
