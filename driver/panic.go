package driver

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// panicked is a panic that is passed from one goroutine to another.
type panicked struct {
	value any
	stack []byte // of the goroutine that it comes from
}

// asPanic returns what recover has returned, with the stack. It must be called by the
// deferred function.
func asPanic(value any) *panicked {
	if p, ok := value.(*panicked); ok {
		return p
	}
	return &panicked{value, debug.Stack()}
}

// String is what the runtime prints if nobody recovers.
func (p *panicked) String() string { return fmt.Sprintf("%v\n%s", p.value, p.stack) }

func (p *panicked) err() error { return fmt.Errorf("the driver has panicked: %v", p.value) }

// guard calls f on a goroutine of the engine. A panic there has no caller that could
// recover from it, and must not end the process: it is logged, and returned as an error.
func (c *Client) guard(ctx context.Context, name string, f func()) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		p := asPanic(v)
		err = p.err()
		c.opts.Logger.LogAttrs(ctx, slog.LevelError, "the driver has panicked", slog.String("lock", name),
			slog.String("backend", c.caps.Backend), slog.Any("panic", p.value), slog.String("stack", string(p.stack)))
	}()
	f()
	return nil
}
