package asynqrecipe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// schedule is the recipe, letter by letter as in ../README.md.
func schedule(ctx context.Context, locker distlock.Locker, scheduler *asynq.Scheduler) error {
	err := distlock.Do(ctx, locker, "asynq/scheduler", func(ctx context.Context) error {
		if err := scheduler.Start(); err != nil {
			return err
		}
		<-ctx.Done() // the program ends, or the lock is lost
		scheduler.Shutdown()
		return nil
	})
	return err
}

func TestRecipeIsTheReadmes(t *testing.T) {
	page, err1 := os.ReadFile("../README.md")
	code, err2 := os.ReadFile("recipe_test.go")
	testkit.Must(t, errors.Join(err1, err2))
	_, recipe, _ := strings.Cut(string(page), "```go\n")
	recipe, _, _ = strings.Cut(recipe, "  ```")
	var lines []string
	for _, line := range strings.Split(strings.TrimRight(recipe, "\n"), "\n") {
		lines = append(lines, "\t"+strings.TrimPrefix(line, "  "))
	}
	if !strings.Contains(string(code), strings.Join(lines, "\n")) {
		t.Errorf("the recipe of the page is not the one of this test:\n%s", strings.Join(lines, "\n"))
	}
}

// The tasks of every second are enqueued by one of two schedulers, and by the other
// after the first has ended. Which backend has the lock is all the same to asynq,
// which needs a Redis for its tasks.
func TestOneSchedules(t *testing.T) {
	tasks := servers.ForTest(t, servers.Redis)
	servers.Each(t, func(t *testing.T, url string) {
		redis := asynq.RedisClientOpt{Addr: tasks.Addr()}
		queue := "queue-" + strings.ReplaceAll(t.Name(), "/", "-")
		start := func() (stop func()) {
			locker, err := backends.Open(t.Context(), url)
			testkit.Must(t, err)
			s := asynq.NewScheduler(redis, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
			if _, err := s.Register("@every 1s", asynq.NewTask("tick", nil), asynq.Queue(queue)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- schedule(ctx, locker, s) }()
			return func() {
				cancel()
				if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				testkit.Should(t, locker.Close())
			}
		}
		began := time.Now()
		first, second := start(), start()
		enqueued(t, redis, queue, 2)
		first()
		if n := enqueued(t, redis, queue, 4); n > int(time.Since(began)/time.Second)+2 {
			t.Errorf("%d tasks in %v: both schedulers enqueue", n, time.Since(began))
		}
		second()
	})
}

// enqueued waits until the queue has at least n tasks, and returns how many.
func enqueued(t *testing.T, redis asynq.RedisClientOpt, queue string, n int) (pending int) {
	t.Helper()
	inspector := asynq.NewInspector(redis)
	defer inspector.Close()
	testkit.Until(t, fmt.Sprintf("%d tasks", n), func() bool {
		info, err := inspector.GetQueueInfo(queue)
		if err == nil {
			pending = info.Pending
		}
		return pending >= n
	})
	return pending
}
