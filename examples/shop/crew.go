package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
)

// workerEnv holds the job of a worker process. The URL is not in its arguments:
// everybody on the machine can read those.
const workerEnv = "DISTLOCK_EXAMPLE_SHOP"

// job is what a worker is told.
type job struct {
	Scene    string
	Locked   bool
	URL      string
	Database string
	Worker   int
}

// crew starts the processes of one scene. It is used by one goroutine.
type crew struct {
	url, scene, database string
	locked               bool

	wg   sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

// start starts worker number n.
func (c *crew) start(ctx context.Context, n int) error {
	text, err := json.Marshal(job{c.scene, c.locked, c.url, c.database, n})
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	c.wg.Go(func() {
		err := cmd.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.errs = append(c.errs, fmt.Errorf("worker %d: %w", n, err))
		}
	})
	return nil
}

// startAll starts workers 1 to n.
func (c *crew) startAll(ctx context.Context, n int) error {
	for i := range n {
		if err := c.start(ctx, i+1); err != nil {
			return err
		}
	}
	return nil
}

// wait returns when all have ended.
func (c *crew) wait() error {
	c.wg.Wait()
	return errors.Join(c.errs...)
}
