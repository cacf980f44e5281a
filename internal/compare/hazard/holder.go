package hazard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/distlock-go/distlock"
)

// holderOrder is what a child process is asked to do: one JSON object on its
// standard input. The end of the input is the order to unlock and exit.
type holderOrder struct {
	Name string        `json:"name"`
	TTL  time.Duration `json:"ttl"`
}

// holderEvent is what it tells, one JSON object to a line. Stamps are on the clock
// of the machine, see machineClock.
type holderEvent struct {
	Event string `json:"event"` // "held", "renewed", "lost", "failed"
	belief
}

// The events.
const (
	eventHeld    = "held"
	eventRenewed = "renewed" // the deadline has moved
	eventLost    = "lost"
	eventFailed  = "failed" // no lock could be had
)

// belief is what a holder knows of its lock.
type belief struct {
	Token    int64         `json:"token,omitempty"`
	Asked    time.Duration `json:"asked,omitempty"`    // when Lock was called
	Deadline time.Duration `json:"deadline,omitempty"` // the last one; nothing if there is none
	Last     time.Duration `json:"last,omitempty"`     // when the last look began that showed the lock held
	Knew     time.Duration `json:"knew,omitempty"`     // when the first look had ended that showed it lost
	Err      string        `json:"err,omitempty"`
}

// look is the pause between two looks of a holder at its lock.
const look = 5 * time.Millisecond

// HolderMain is the life of a child process. It holds a lock until it loses it, is
// killed or stopped, or is told to leave by the end of in. open must return a client of
// the store.
func HolderMain(ctx context.Context, open func(context.Context) (distlock.Locker, error), in io.Reader, out io.Writer) error {
	orders, events := json.NewDecoder(in), json.NewEncoder(out)
	var o holderOrder
	if err := orders.Decode(&o); err != nil {
		return fmt.Errorf("what to hold: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in) // whatever ends it: the parent is gone
		cancel()
	}()
	l, err := open(ctx)
	if err != nil {
		return errors.Join(err, events.Encode(holderEvent{Event: eventFailed, belief: belief{Err: err.Error()}}))
	}
	asked := machineNow()
	lock, err := l.Lock(ctx, o.Name, distlock.TTL(o.TTL))
	if err != nil {
		return errors.Join(err, events.Encode(holderEvent{Event: eventFailed, belief: belief{Err: err.Error()}}), l.Close())
	}
	held := eventHeld
	end := follow(ctx, lock, asked, func(b belief) {
		_ = events.Encode(holderEvent{held, b}) // without a parent, in has ended as well
		held = eventRenewed
	})
	if end.Err != "" {
		_ = events.Encode(holderEvent{eventLost, end})
	}
	<-ctx.Done()
	return l.Close() // unlocks
}

// follow looks at a lock until it is lost or ctx ends, and returns what its holder
// knew then. told is called at first, and for every new deadline.
func follow(ctx context.Context, lock distlock.Lock, asked time.Duration, told func(belief)) belief {
	b := belief{Token: lock.Token(), Asked: asked}
	done := lock.Done()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for first := true; ; first = false {
		began := machineNow()
		err := lock.Err()
		deadline := machineAt(lock.Deadline())
		moved := deadline != b.Deadline
		b.Deadline = deadline
		if err != nil {
			b.Knew, b.Err = machineNow(), err.Error()
			return b
		}
		b.Last = began
		if first || moved {
			told(b)
		}
		select {
		case <-done:
			// Err is the judge; a channel that closes although Err is nil must
			// not make this loop spin.
			done = nil
		case <-tick.C:
		case <-ctx.Done():
			return b
		}
	}
}
