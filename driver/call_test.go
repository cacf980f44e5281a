package driver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/memlock"
)

// What runs detached does not hold up its caller after the end of the context.
func TestDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if v, err := driver.Detach(bg, func() (int, error) { return 7, errBroken }); v != 7 || err != errBroken {
			t.Errorf("got %v, %v", v, err)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		start := time.Now()
		v, err := driver.Detach(ctx, func() (int, error) { time.Sleep(time.Minute); return 7, nil })
		if v != 0 || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("got %v, %v after %v", v, err, time.Since(start))
		}
		time.Sleep(time.Minute) // a bubble must not be left with a goroutine in it
	})
}

// A claim that nothing wakes is polled, also on a driver that wakes others, and if its
// Wait has nothing to wait for.
func TestNoWake(t *testing.T) {
	for what, wait := range map[string]func() error{"Wait returns": func() error { return nil }, "Wait blocks": nil} {
		t.Run(what, func(t *testing.T) {
			d := &oddDriver{wait: wait}
			free := time.Now().Add(time.Hour)
			d.try = func() (driver.Grant, error) {
				if time.Now().Before(free) {
					return driver.Grant{}, &driver.Held{NoWake: true}
				}
				return driver.Grant{Token: 1, TTL: time.Minute}, nil
			}
			odd(t, d, func(t *testing.T, l *driver.Client, _ distlock.Locker) {
				free = time.Now().Add(10 * time.Second)
				mustLock(t, bg, l, "x", distlock.TTL(time.Minute))
				if late := time.Since(free); late > 200*time.Millisecond {
					t.Errorf("acquired %v after it came free", late)
				}
				if n := d.tries.Load(); n > 200 {
					t.Errorf("%d tries in ten seconds", n)
				}
			})
		})
	}
}

// What a refusal says of the holder reaches the caller, with the token as users see it.
func TestHolderOfRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := &distlock.HeldError{Remaining: time.Minute, Holder: "somebody", Token: 7}
		d := &oddDriver{Driver: memlock.NewDriver(memlock.NewStore(nil)), try: func() (driver.Grant, error) { return driver.Grant{}, refusal }}
		l := client(t, d, &distlock.Options{TokenBase: 1000})
		_, err := l.TryLock(bg, "x")
		var held *distlock.HeldError
		if !errors.As(err, &held) || held.Holder != "somebody" || held.Token != 1007 || held.Remaining != time.Minute {
			t.Errorf("got %+v (%v)", held, err)
		}
		if refusal.Token != 7 {
			t.Error("the driver's own error was changed, which other claims may share")
		}
	})
}
