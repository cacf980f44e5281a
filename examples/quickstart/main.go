// Command quickstart is the program of the README: it takes a lock, shows its token
// and gives it back.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
)

func main() {
	if err := run(context.Background(), os.Getenv("DISTLOCK_URL")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	locker, err := backends.Open(ctx, url) // one for the process; mem://TESTNAME in tests
	if err != nil {
		return err
	}
	defer locker.Close()
	return pay(ctx, locker, "orders/42")
}

// pay pays an order, unless somebody else is doing so.
func pay(ctx context.Context, locker distlock.Locker, order string) error {
	wait, cancel := context.WithTimeout(ctx, 5*time.Second) // bounds the wait, not the lock
	defer cancel()
	lock, err := locker.Lock(wait, order) // TryLock does not wait
	if errors.Is(err, distlock.ErrHeld) {
		return fmt.Errorf("somebody else is paying it: %w", err)
	}
	if err != nil {
		return err
	}
	defer lock.Unlock(ctx)

	// The holder before may have paid it: read its state now.
	fmt.Println("paying", order, "by token", lock.Token())
	return nil
}
