package patterns_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

// wrappersOf returns l in each of the wrappers.
func wrappersOf(l distlock.Locker) map[string]distlock.Locker {
	read, write := patterns.ReadWrite(l, 2)
	return map[string]distlock.Locker{
		"MaxHold":   patterns.MaxHold(l, time.Minute),
		"Prefix":    patterns.Prefix(l, "tenant/"),
		"ReadWrite": read, "ReadWrite, to write": write,
		"Reentrant": patterns.Reentrant(l),
		"Semaphore": patterns.Semaphore(l, 2),
	}
}

// Operators see through all wrappers.
func TestOperatorsSeeThrough(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		for what, w := range wrappersOf(patterns.MaxHold(l, time.Hour)) {
			lock := mustLock(t, patterns.WithOwner(bg), w, what)
			listed, err := distlock.List(bg, w, what)
			if err != nil || len(listed) == 0 {
				t.Errorf("%s: List returned %v, %v", what, listed, err)
				continue
			}
			seen, err := distlock.Inspect(bg, w, listed[0].Name)
			if err != nil || !seen.Held {
				t.Errorf("%s: Inspect returned %+v, %v", what, seen, err)
			}
			if err := distlock.Break(bg, w, seen.Name, seen.Token); err != nil {
				t.Errorf("%s: Break: %v", what, err)
			}
			_ = lock.Unlock(bg)
			if u, ok := w.(interface{ Unwrap() distlock.Locker }); !ok || u.Unwrap() == nil {
				t.Errorf("%s has no Unwrap", what)
			}
		}
	})
}

// The error of a call names that call and its lock, not what a wrapper has made of it.
func TestErrorsNameTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		healthy := open(t, memlock.NewStore(nil))
		down := openFailing(t, memlock.NewStore(&memlock.StoreOptions{Intercept: func(context.Context, memlock.Call, func()) error {
			return errors.New("the store is down")
		}}))
		past, end := context.WithCancel(patterns.WithOwner(bg))
		end()
		owner := patterns.WithOwner(bg)
		_, write := patterns.ReadWrite(healthy, 2)
		for _, tc := range []struct {
			what string
			l    distlock.Locker
			ctx  context.Context
			name string
			opts []distlock.Option
		}{
			{"Prefix of nothing", patterns.Prefix(healthy, "a/"), bg, "", nil},
			{"MaxHold of zero", patterns.MaxHold(healthy, 0), bg, "x", nil},
			{"MaxHold of less than a fixed term", patterns.MaxHold(healthy, time.Second), bg, "x", []distlock.Option{distlock.NoRenewal(), distlock.TTL(time.Minute)}},
			{"Reentrant without an owner", patterns.Reentrant(healthy), bg, "x", nil},
			{"Reentrant without time", patterns.Reentrant(healthy), past, "x", nil},
			{"a writer's fixed term", write, bg, "x", []distlock.Option{distlock.NoRenewal()}},
			{"no slots", patterns.Semaphore(healthy, 0), bg, "x", nil},
			{"slots beyond count", patterns.Semaphore(healthy, math.MaxInt), bg, "x", nil},
			{"a semaphore without a store", patterns.Semaphore(down, 2), bg, "x", nil},
		} {
			for op, call := range map[string]func(context.Context, string, ...distlock.Option) (distlock.Lock, error){
				"lock": tc.l.Lock, "trylock": tc.l.TryLock,
			} {
				_, err := call(tc.ctx, tc.name, tc.opts...)
				if e, ok := err.(*distlock.Error); !ok || e.Op != op || e.Name != tc.name {
					t.Errorf("%s, %s: %v", tc.what, op, err)
				}
			}
		}
		for what, l := range wrappersOf(down) {
			if what == "Prefix" { // the name in the store helps there
				continue
			}
			for op, call := range map[string]func(context.Context, string, ...distlock.Option) (distlock.Lock, error){
				"lock": l.Lock, "trylock": l.TryLock,
			} {
				_, err := call(owner, "x")
				if e, ok := err.(*distlock.Error); !ok || e.Op != op || e.Name != "x" {
					t.Errorf("%s without a store, %s: %v", what, op, err)
				}
			}
		}
	})
}

// What is nil is told by a sentence, before anything is locked; a nil option changes nothing.
func TestNilArguments(t *testing.T) {
	bubble(t, func(t *testing.T, l, _ *memlock.Locker) {
		for what, w := range wrappersOf(l) {
			if err := mustLock(t, patterns.WithOwner(bg), w, what, nil).Unlock(bg); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		nothing := func(context.Context) error { return nil }
		lead := func(context.Context, int64) error { return nil }
		for said, f := range map[string]func(){
			"elect of a nil Locker":     func() { patterns.Elect(bg, nil, "x", lead) },
			"elect of a nil function":   func() { patterns.Elect(bg, l, "x", nil) },
			"onceper of a nil Locker":   func() { _, _ = patterns.OncePer(bg, nil, "x", time.Hour, nothing) },
			"onceper of a nil function": func() { _, _ = patterns.OncePer(bg, l, "x", time.Hour, nil) },
			"lockall of a nil Locker":   func() { _, _ = patterns.LockAll(bg, nil, []string{"x"}) },
			"maxhold of a nil Locker":   func() { patterns.MaxHold(nil, time.Hour) },
			"prefix of a nil Locker":    func() { patterns.Prefix(nil, "x") },
			"readwrite of a nil Locker": func() { patterns.ReadWrite(nil, 2) },
			"reentrant of a nil Locker": func() { patterns.Reentrant(nil) },
			"semaphore of a nil Locker": func() { patterns.Semaphore(nil, 2) },
			"shard of a nil Locker":     func() { _, _ = patterns.Shard(map[string]distlock.Locker{"a": l, "b": nil}) },
			"wanted of a nil Locker":    func() { _, _ = patterns.Wanted(bg, nil, mustLock(t, bg, l, "wanted"), time.Hour) },
		} {
			func() {
				defer func() {
					if v := recover(); !strings.Contains(fmt.Sprint(v), "distlock: "+said+": ") {
						t.Errorf("recovered %v, want %q", v, said)
					}
				}()
				f()
			}()
		}
		mustLock(t, bg, l, "x") // nobody holds it
	})
}
