package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

// locker returns a Locker that needs no server. Programs call backends.Open.
func locker() distlock.Locker {
	l, err := memlock.New(memlock.NewStore(nil), nil)
	if err != nil {
		panic(err) // only options can be wrong
	}
	return l
}

func Example() {
	ctx := context.Background()
	locker := locker() // in a program: backends.Open(ctx, "redis://localhost:6379")
	defer locker.Close()

	lock, err := locker.Lock(ctx, "orders/42")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locker.TryLock(ctx, "orders/42")
	fmt.Println("held by another:", errors.Is(err, distlock.ErrHeld))
	fmt.Println("unlocked:", lock.Unlock(ctx))
	// Output:
	// held by another: true
	// unlocked: <nil>
}

func ExampleDo() {
	ctx, locker := context.Background(), locker()
	defer locker.Close()
	err := distlock.Do(ctx, locker, "orders/42", func(ctx context.Context) error {
		// The context ends if the lock is lost. It carries the lock.
		lock, _ := distlock.FromContext(ctx)
		fmt.Println("paying with token", lock.Token())
		return nil
	}, distlock.TTL(10*time.Second))
	fmt.Println("error:", err)
	// Output:
	// paying with token 1
	// error: <nil>
}

// The wait is bounded, and the work is not.
func ExampleRun() {
	ctx, locker := context.Background(), locker()
	defer locker.Close()
	wait, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	lock, err := locker.Lock(wait, "orders/42")
	if errors.Is(err, distlock.ErrHeld) {
		fmt.Println("another is at it")
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	err = distlock.Run(ctx, lock, func(ctx context.Context) error {
		fmt.Println("paying order 42, unless it is paid")
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// paying order 42, unless it is paid
	// error: <nil>
}

func ExampleNewContext() {
	ctx, locker := context.Background(), locker()
	defer locker.Close()
	lock, err := locker.Lock(ctx, "orders/42")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lock.Unlock(ctx)
	carried, ok := distlock.FromContext(distlock.NewContext(ctx, lock))
	fmt.Println(carried.Name(), ok)
	// Output: orders/42 true
}

func ExampleFromContext() {
	ctx, locker := context.Background(), locker()
	defer locker.Close()
	save := func(ctx context.Context) error {
		lock, ok := distlock.FromContext(ctx)
		if !ok {
			return errors.New("save is called under a lock only")
		}
		fmt.Println("saved with fence", lock.Token())
		return nil
	}
	fmt.Println(distlock.Do(ctx, locker, "orders/42", save))
	fmt.Println(save(ctx))
	// Output:
	// saved with fence 1
	// <nil>
	// save is called under a lock only
}

func ExampleInspect() {
	ctx, locker := context.Background(), locker()
	defer locker.Close()
	if _, err := locker.Lock(ctx, "nightly", distlock.Holder("worker-3")); err != nil {
		fmt.Println(err)
		return
	}
	st, err := distlock.Inspect(ctx, locker, "nightly")
	fmt.Println(st.Held, st.Holder, st.Token, st.Waiters, err)
	// Output: true worker-3 1 0 <nil>
}

func ExampleList() {
	ctx, locker := context.Background(), locker()
	defer locker.Close()
	for _, name := range []string{"jobs/b", "jobs/a", "other"} {
		if _, err := locker.Lock(ctx, name); err != nil {
			fmt.Println(err)
			return
		}
	}
	held, err := distlock.List(ctx, locker, "jobs/")
	fmt.Println(held[0].Name, held[1].Name, len(held), err)
	// Output: jobs/a jobs/b 2 <nil>
}

func ExampleBreak() {
	ctx, locker := context.Background(), locker()
	defer locker.Close()
	lock, err := locker.Lock(ctx, "nightly")
	if err != nil {
		fmt.Println(err)
		return
	}
	// The hold that was seen, and no later one.
	fmt.Println(distlock.Break(ctx, locker, "nightly", lock.Token()))
	fmt.Println("lost:", errors.Is(lock.Unlock(ctx), distlock.ErrLost))
	// Output:
	// <nil>
	// lost: true
}

func ExampleSweep() {
	ctx, locker := context.Background(), locker()
	defer locker.Close()
	_, err := distlock.Sweep(ctx, locker, 24*time.Hour) // MySQL keeps a row of each name
	fmt.Println("needs no sweeping:", errors.Is(err, distlock.ErrUnsupported))
	// Output: needs no sweeping: true
}

func ExampleNoRenewal() {
	ctx, locker := context.Background(), locker()
	defer locker.Close()
	// Nobody else for ten seconds, unless Unlock or Close ends it before.
	lock, err := locker.Lock(ctx, "mail/42", distlock.TTL(10*time.Second), distlock.NoRenewal())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(time.Until(lock.Deadline()) > 9*time.Second)
	// Output: true
}

func ExampleAs() {
	ctx, all := context.Background(), locker()
	defer all.Close()
	lock, err := patterns.Prefix(all, "a/").Lock(ctx, "x")
	if err != nil {
		fmt.Println(err)
		return
	}
	// What only the locks of one backend can do, through any wrapper: *mysqllock.Lock and
	// *pglock.Lock have Guard, *etcdlock.Lock has Cmp.
	if _, ok := distlock.As[interface {
		distlock.Lock
		Guard()
	}](lock); !ok {
		fmt.Println("these locks guard nothing")
	}
	// Output: these locks guard nothing
}
