package driver_test

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
	"github.com/distlock-go/distlock/patterns"
)

// limited is a driver with other capabilities than its own.
type limited struct {
	driver.Driver
	change func(*driver.Capabilities)
}

func (d limited) Capabilities() driver.Capabilities {
	caps := d.Driver.Capabilities()
	d.change(&caps)
	return caps
}

// upTo limits the TTL to a minute.
func upTo(d driver.Driver) driver.Driver {
	return limited{d, func(c *driver.Capabilities) { c.MinTTL, c.MaxTTL = time.Second, time.Minute }}
}

func client(t *testing.T, d driver.Driver, o *distlock.Options) *driver.Client {
	t.Helper()
	l, err := driver.New(d, o)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// A lock that is renewed gets the longest TTL that the store can promise, and a fixed
// term that the store cannot keep is refused.
func TestTTLBeyondWhatTheStoreCanPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := upTo(memlock.NewDriver(memlock.NewStore(nil)))
		l := client(t, d, &distlock.Options{TTL: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for _, opts := range [][]distlock.Option{nil, {distlock.TTL(2 * time.Minute)}, {distlock.TTL(distlock.MaxTTL)}} {
			lock := mustLock(t, bg, l, "x", opts...)
			left := time.Until(lock.Deadline())
			if left > time.Minute || left < 59*time.Second {
				t.Errorf("the deadline is in %v, want the longest TTL of the store, 1m0s", left)
			}
			if err := lock.Extend(bg, 2*time.Hour); err != nil || time.Until(lock.Deadline()) > time.Minute {
				t.Errorf("Extend: %v, the deadline is in %v", err, time.Until(lock.Deadline()))
			}
			time.Sleep(3 * time.Minute)
			mustUnlock(t, bg, lock)
		}
		for what, opts := range map[string][]distlock.Option{
			"fixed term":           {distlock.TTL(time.Minute + 1), distlock.NoRenewal()},
			"fixed default":        {distlock.NoRenewal()},
			"more than any":        {distlock.TTL(distlock.MaxTTL + 1)},
			"below the shortest":   {distlock.TTL(time.Second - 1)},
			"fixed, and too short": {distlock.TTL(time.Second - 1), distlock.NoRenewal()},
		} {
			_, err := l.TryLock(bg, "y", opts...)
			wantErr(t, what, err, distlock.ErrInvalid)
		}
		_, err := patterns.OncePer(bg, l, "y", time.Hour, func(context.Context) error { return nil })
		wantErr(t, "a period", err, distlock.ErrInvalid)
		if text := `distlock: onceper "y": for a period of 1h0m0s`; !strings.HasPrefix(err.Error(), text) {
			t.Errorf("a period that is too long: %v, want %s", err, text)
		}
		fixed := mustLock(t, bg, l, "fixed", distlock.TTL(time.Minute), distlock.NoRenewal())
		wantErr(t, "Extend of a fixed term", fixed.Extend(bg, time.Minute+1), distlock.ErrInvalid)
		if n := strings.Count(log.String(), "level=INFO"); n != 1 || !strings.Contains(log.String(), "granted=1m0s") {
			t.Errorf("%d lines at Info, want 1 that names what was granted:\n%s", n, &log)
		}
		for _, ttl := range []time.Duration{-1, distlock.MaxTTL + 1, time.Millisecond} {
			_, err := driver.New(d, &distlock.Options{TTL: ttl})
			wantErr(t, "New", err, distlock.ErrInvalid)
		}
	})
}

// hangingLog is a handler for which a function stands.
type hangingLog struct {
	lines
	handle func(slog.Record)
}

func (h *hangingLog) Handle(_ context.Context, r slog.Record) error {
	h.handle(r)
	return nil
}

// What is said once in the log holds up only the call that says it, and the handler may
// take a lock itself.
func TestLogOfLoweredTTLHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *driver.Client
		said, goOn := 0, make(chan struct{})
		log := &hangingLog{handle: func(r slog.Record) {
			if r.Level != slog.LevelInfo {
				return
			}
			said++
			mustLock(t, bg, l, "of the handler", distlock.TTL(time.Hour))
			<-goOn
		}}
		l = client(t, upTo(memlock.NewDriver(memlock.NewStore(nil))), &distlock.Options{Logger: slog.New(log)})
		var wg sync.WaitGroup
		wg.Go(func() { mustLock(t, bg, l, "x", distlock.TTL(time.Hour)) })
		synctest.Wait()
		mustLock(t, bg, l, "y", distlock.TTL(time.Hour))
		close(goOn)
		wg.Wait()
		if said != 1 {
			t.Errorf("it was said %d times", said)
		}
	})
}

// A deadline is never later than what was asked for, from before the request,
// whatever the store says.
func TestGrantIsNotBelievedBeyondWhatWasAsked(t *testing.T) {
	for what, boast := range map[string]func(*driver.Grant){
		"TTL":  func(g *driver.Grant) { g.TTL += time.Hour },
		"Sent": func(g *driver.Grant) { g.Sent = time.Now().Add(time.Minute) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := limited{
					&oddDriver{Driver: memlock.NewDriver(memlock.NewStore(nil)), boast: boast},
					func(c *driver.Capabilities) { c.TTLGranularity = time.Second },
				}
				l := client(t, d, nil)
				lock := mustLock(t, bg, l, "x", distlock.TTL(3*time.Second))
				for range 20 {
					if left := time.Until(lock.Deadline()); left <= 0 || left > 4*time.Second {
						t.Fatalf("the deadline is in %v, asked for were 3s, rounded to 1s", left)
					}
					time.Sleep(300 * time.Millisecond)
				}
				testkit.Must(t, lock.Extend(bg, 10*time.Second))
				if left := time.Until(lock.Deadline()); left > 11*time.Second {
					t.Errorf("after Extend(10s) the deadline is in %v", left)
				}
			})
		})
	}
}

// A lock that was extended learns of its loss as soon as one that was not.
func TestLossAfterExtend(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(time.Second))
		testkit.Must(t, lock.Extend(bg, time.Hour))
		time.Sleep(10 * time.Minute)
		if n := n.count("renew"); n < 10*60*3 {
			t.Errorf("%d renewals in ten minutes, want three a second", n)
		}
		// Nor does one that hangs take a part of the hour.
		n.use(on("renew", once(stuck)))
		time.Sleep(400 * time.Millisecond)
		testkit.Must(t, distlock.Break(bg, rival, "x", 0))
		start := time.Now()
		<-lock.Done()
		if d := time.Since(start); d > time.Second {
			t.Errorf("told after %v", d)
		}
	})
}

// A call to Extend that hangs leaves time for the renewals.
func TestHangingExtend(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(3*time.Second))
		n.use(on("renew", once(stuck)))
		if err := lock.Extend(bg, time.Minute); err == nil {
			t.Error("extended")
		}
		time.Sleep(time.Minute)
		if err := lock.Err(); err != nil {
			t.Errorf("one call that hung has lost the lock: %v", err)
		}
	})
}

func TestTokenBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const base = 1_795_292_617_123_456
		store := memlock.NewStore(nil)
		seen := make(chan int64, 100)
		l := client(t, memlock.NewDriver(store), &distlock.Options{TokenBase: base, Observer: &distlock.Observer{
			Acquired: func(e distlock.Acquired) { seen <- e.Token },
			Renewed:  func(e distlock.Renewed) { seen <- e.Token },
			Lost:     func(e distlock.Lost) { seen <- e.Token },
			Released: func(e distlock.Released) { seen <- e.Token },
		}})
		raw := client(t, memlock.NewDriver(store), nil)
		wrapped := patterns.Prefix(patterns.Reentrant(l), "a/")
		ctx := patterns.WithOwner(bg)
		for i := range int64(3) {
			token := base + 1 + i
			lock := mustLock(t, ctx, wrapped, "x")
			handle, _ := distlock.As[*driver.Handle](lock)
			if lock.Token() != token || handle.StoreToken() != token-base {
				t.Errorf("token %d, of the store %d, want %d and %d", lock.Token(), handle.StoreToken(), token, token-base)
			}
			time.Sleep(11 * time.Second) // a renewal
			st, err := distlock.Inspect(bg, l, "a/x")
			if err != nil || st.Token != token {
				t.Errorf("Inspect: token %d, %v, want %d", st.Token, err, token)
			}
			sts, err := distlock.List(bg, l, "")
			if err != nil || len(sts) != 1 || sts[0].Token != token {
				t.Errorf("List: %v, %v, want token %d", sts, err, token)
			}
			if st, err := distlock.Inspect(bg, raw, "a/x"); err != nil || st.Token != token-base {
				t.Errorf("without a base: token %d, %v", st.Token, err)
			}
			wantErr(t, "Break with a token of another base", distlock.Break(bg, l, "a/x", token-base), distlock.ErrInvalid)
			wantErr(t, "Break with a token of nobody", distlock.Break(bg, l, "a/x", token+1), distlock.ErrLost)
			if i == 0 {
				testkit.Should(t, distlock.Break(bg, patterns.Prefix(l, "a/"), "x", token))
				<-lock.Done()
			}
			_ = lock.Unlock(ctx)
			synctest.Wait()
			for len(seen) > 0 {
				if got := <-seen; got != token {
					t.Errorf("the observer was told of token %d, want %d", got, token)
				}
			}
		}
		if st, err := distlock.Inspect(bg, l, "never held"); err != nil || st.Token != 0 {
			t.Errorf("a name without a token: %d, %v", st.Token, err)
		}
	})
}

// A token that cannot be shown is an error, and the lock is not taken.
func TestTokenBaseOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore(nil)
		l := client(t, memlock.NewDriver(store), &distlock.Options{TokenBase: math.MaxInt64 - 1})
		mustLock(t, bg, l, "first")
		if _, err := l.Lock(bg, "x"); err == nil || !strings.Contains(err.Error(), "token base") {
			t.Errorf("Lock: %v, want an error that names the token base", err)
		}
		synctest.Wait()
		raw := client(t, memlock.NewDriver(store), nil)
		mustLock(t, bg, raw, "x")
		if _, err := distlock.Inspect(bg, l, "x"); err == nil {
			t.Error("Inspect showed a token that cannot be")
		}
		_, err := driver.New(memlock.NewDriver(store), &distlock.Options{TokenBase: -1})
		wantErr(t, "New", err, distlock.ErrInvalid)
	})
}
