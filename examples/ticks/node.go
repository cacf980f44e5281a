package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/patterns"
)

// nodeEnv is set in the environment of node processes, to what they are to do.
const nodeEnv = "DISTLOCK_EXAMPLE_NODE"

// The modes.
const (
	plain = "under a plain lock"
	once  = "once per tick"
)

// node is one of the machines of the service.
type node struct {
	ID   int
	URL  string
	Name string
	Mode string
	Tick time.Duration
}

// closing is one run of the job, or why there is none.
type closing struct {
	Node  int
	At    time.Time
	Ready bool // it has run nothing yet, and waits for the others
	Err   string
}

// work closes the orders at each tick, until the process is killed.
func work(job string) {
	var n node
	out := json.NewEncoder(os.Stdout)
	err := json.Unmarshal([]byte(job), &n)
	if err == nil {
		err = n.tick(context.Background(), func(c closing) error { return out.Encode(c) })
	}
	_ = out.Encode(closing{Node: n.ID, Err: err.Error()}) // if it fails, nobody listens any more
}

// tick runs the job at each tick, and returns why it cannot go on.
func (n node) tick(ctx context.Context, tell func(closing) error) error {
	locker, err := backends.Open(ctx, n.URL)
	if err != nil {
		return err
	}
	defer locker.Close()
	var untold error // nobody listens any more
	closeOrders := func(context.Context) error {
		at := time.Now()
		time.Sleep(50 * time.Millisecond) // UPDATE orders SET state = 'closed' WHERE ...
		untold = tell(closing{Node: n.ID, At: at})
		return untold
	}
	if err := tell(closing{Node: n.ID, Ready: true}); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	for {
		// The clocks of machines are never quite the same: here they are 150 ms apart.
		apart := time.Duration(n.ID-1) * 150 * time.Millisecond
		next := time.Now().Add(-apart).Truncate(n.Tick).Add(n.Tick + apart)
		time.Sleep(time.Until(next))
		switch n.Mode {
		case plain:
			err = n.underLock(ctx, locker, closeOrders)
		case once:
			_, err = patterns.OncePer(ctx, locker, n.Name, n.Tick, closeOrders)
		}
		switch {
		case untold != nil:
			return untold
		case err != nil && !errors.Is(err, distlock.ErrLost): // if it was lost, the job has run, and the lock ended before it was given back
			log.Printf("node %d leaves out a tick: %v", n.ID, err) // the store may answer at the next
		}
	}
}

// underLock runs the job if the lock is free, as many schedulers do.
func (n node) underLock(ctx context.Context, l distlock.Locker, job func(context.Context) error) error {
	lock, err := l.TryLock(ctx, n.Name, distlock.TTL(2*time.Second))
	if errors.Is(err, distlock.ErrHeld) {
		return nil // another node does it
	}
	if err != nil {
		return err
	}
	return errors.Join(job(ctx), lock.Unlock(ctx))
}
