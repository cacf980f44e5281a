package redislock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
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

// command is one request to run a script. go-redis sends a request again by itself when a
// connection fails, three times by default, also a whole pipeline. A script does no harm if it is
// sent twice, but its caller has to know: the first copy may have been applied, or may still
// arrive.
//
// The fields are atomic because go-redis may go on when the caller has left.
type command struct {
	*redis.Cmd
	asked   atomic.Int32          // calls of NoRetry
	lost    atomic.Bool           // an attempt has had no answer, as far as SetErr knows
	refused atomic.Pointer[error] // the last answer of a server that could not run it yet
}

func newCommand(ctx context.Context, name, what string, keys []string, args []any) *command {
	return &command{Cmd: endpoint.NewCmd(ctx, name, what, keys, args)}
}

// NoRetry implements redis.Cmder. go-redis asks when an attempt has failed, and the client of
// a single server says nothing else of that attempt.
func (c *command) NoRetry() bool {
	c.asked.Add(1)
	return false
}

// SetErr implements redis.Cmder. An answer stays. When its context ends, the client of a cluster
// would write that over the answers that the commands of a pipeline have had, and over the latest
// error of the server. That client sets the error of each attempt.
func (c *command) SetErr(err error) {
	switch {
	case err != nil && c.Val() != nil:
		return
	case notYet(err):
		refused := err // or each call would move err to the heap
		c.refused.Store(&refused)
	case err != nil && !endpoint.Answered(err):
		c.lost.Store(true)
	}
	c.Cmd.SetErr(err)
}

// resent reports whether an earlier copy of the command may have been applied, or may still
// arrive. refusals is how many of its attempts are known to have been refused.
func (d *store) resent(c *command, refusals int32) bool {
	return c.lost.Load() || d.cluster == nil && c.asked.Load() > refusals
}

// sender sends a command and waits for its outcome, or for the end of ctx. After that the
// command must not be read.
type sender func(ctx context.Context, cmd *command) error

// run runs s. It reports whether an earlier copy of the request may have been applied, or may
// still arrive. It reports true after an error, unless a server answered that it has run nothing.
//
//	EVALSHA digest ──▶ answer
//	               ──▶ NOSCRIPT, so nothing has run: EVAL source ──▶ answer
//	               ──▶ no answer: go-redis sends the same again, and resent is true
func (d *store) run(ctx context.Context, send sender, s endpoint.Script, keys []string, args ...any) (answer *redis.Cmd, resent bool, err error) {
	cmd := newCommand(ctx, "evalsha", s.Digest, keys, args)
	err = send(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		// The cache of scripts is lost with a restart, a fail-over or SCRIPT FLUSH.
		// NOSCRIPT is one known refusal: any further attempt had no answer.
		resent = d.resent(cmd, 1)
		cmd = newCommand(ctx, "eval", s.Source, keys, args)
		err = send(ctx, cmd)
	}
	err = fault(ctx, err)
	d.doubt(err)
	resent = resent || d.resent(cmd, 0) || err != nil && !notYet(err)
	if refused := cmd.refused.Load(); refused != nil && ended(err) {
		err = *refused // says more, but of an earlier attempt: the last one has had no answer
	}
	return cmd.Cmd, resent, err
}

// alone sends a command on a connection of its own.
func (d *store) alone(ctx context.Context, cmd *command) error {
	_, err := driver.Detach(ctx, func() (any, error) { return nil, d.client.Process(ctx, cmd) })
	return err
}

// batched sends a command together with those of other callers. On a cluster it does not, as a
// server that hangs would delay the requests to the others.
func (d *store) batched(ctx context.Context, cmd *command) error {
	if d.cluster != nil {
		return d.alone(ctx, cmd)
	}
	return d.batcher.Do(ctx, cmd)
}

const (
	minPause      = 50 * time.Millisecond // before the first repetition; it doubles up to
	maxRetryPause = 200 * time.Millisecond
	maxRetry      = 10 * time.Second
)

// repeat calls f while it returns temporary errors, for as long as ctx and maxRetry allow. It
// returns the error of the last call.
func repeat(ctx context.Context, temporary func(error) bool, f func() error) error {
	ends := time.Now().Add(maxRetry)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(ends) {
		ends = deadline
	}
	for pause := minPause; ; pause = min(2*pause, maxRetryPause) {
		err := f()
		// After a pause there must be time for the call. If it were cut off, its error would
		// stand in place of the server's answer.
		if !temporary(err) || time.Until(ends) <= 2*pause {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// notYet reports whether err is the answer of a server that has run nothing, and may soon:
// it moves the slot to another server, waits for the cluster to choose a master, loads
// its data, or has been in another script for seconds.
func notYet(err error) bool {
	if err == nil {
		return false // almost always, and each prefix would cost an allocation
	}
	for _, prefix := range []string{"TRYAGAIN", "CLUSTERDOWN", "MOVED ", "ASK ", "LOADING", "MASTERDOWN", "BUSY "} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

func ended(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// doubt has the topology of a cluster asked for anew if err is not the answer of a server:
// another may have become the master of the one that does not answer, or has given the slot away.
func (d *store) doubt(err error) {
	if d.cluster != nil && err != nil && (!endpoint.Answered(err) || redis.HasErrorPrefix(err, "MOVED ")) {
		d.cluster.ReloadState(context.Background())
	}
}

// fault returns the error of a request as the caller should see it. Where the context ends a
// request in mid-read, go-redis returns the error of the socket. The deadline of the socket may
// come before the timer of the context. A client stays closed if its owner has closed it.
func fault(ctx context.Context, err error) error {
	deadline, ok := ctx.Deadline()
	switch {
	case err == nil || endpoint.Answered(err):
		return err
	// Before the context: a closed client is final, and a retry is of no use.
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w", distlock.ErrClosed, err)
	case ctx.Err() != nil:
		return ctx.Err()
	case ok && !time.Now().Before(deadline):
		return context.DeadlineExceeded
	}
	return err
}
