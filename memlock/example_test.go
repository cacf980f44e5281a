package memlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
)

func ExampleNew() {
	store := memlock.NewStore(nil)
	alice, _ := memlock.New(store, &memlock.Options{Options: distlock.Options{Holder: "alice"}})
	bob, _ := memlock.New(store, nil) // contends with alice, like another process
	defer alice.Close()
	defer bob.Close()

	ctx := context.Background()
	if _, err := alice.Lock(ctx, "job"); err != nil {
		fmt.Println(err)
		return
	}
	_, err := bob.TryLock(ctx, "job")
	fmt.Println("held:", errors.Is(err, distlock.ErrHeld))
	st, err := distlock.Inspect(ctx, bob, "job")
	fmt.Println("by", st.Holder, err)
	// Output:
	// held: true
	// by alice <nil>
}

// A test in virtual time: what happens after a holder has died takes no time.
func TestAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore(nil)
		bob, err := memlock.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer bob.Close()
		alice, err := memlock.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer alice.Close()
		// A fixed term, never unlocked, is what a dead process leaves behind.
		if _, err := alice.Lock(t.Context(), "job", distlock.TTL(30*time.Second), distlock.NoRenewal()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		lock, err := bob.Lock(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < 29*time.Second || waited > 31*time.Second {
			t.Errorf("bob has waited for %v", waited)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
