package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
)

func TestMillisecondsAreRoundedUp(t *testing.T) {
	t.Parallel()
	c := client(t, server(t).URL())
	d := driverOn(t, c, freshPrefix())
	const asked, want = long + time.Nanosecond, long + time.Millisecond
	var a *claim
	for range 20 {
		a = d.claim(rand.Text(), asked)
		before := c.Time(t.Context()).Val().UnixMilli() // by the clock that the server judges by
		if g := grants(t, a); g.TTL != want {
			t.Errorf("asked for %v, granted %v", asked, g.TTL)
		}
		ends := c.PExpireTime(t.Context(), a.key.entry()).Val().Milliseconds()
		if ends-before < want.Milliseconds() {
			t.Errorf("asked for %v, and the entry ends %d ms after the request", asked, ends-before)
		}
	}
	if g, err := a.Renew(t.Context(), 2*long+time.Nanosecond); err != nil || g.TTL != 2*long+time.Millisecond {
		t.Errorf("Renew for %v: %+v, %v", 2*long+time.Nanosecond, g, err)
	}
}

// scriptRuns returns how many scripts the server has run by their digest.
func scriptRuns(t *testing.T, d *store) (n int) {
	t.Helper()
	info, err := d.client.Info(t.Context(), "commandstats").Result()
	testkit.Must(t, err)
	if _, stats, found := strings.Cut(info, "cmdstat_evalsha:calls="); found {
		_, err = fmt.Sscanf(stats, "%d,", &n)
		testkit.Must(t, err)
	}
	return n
}

// What refuses late requests is itself removed, also from a hash that others keep in
// use.
func TestEndedClaimsAreForgotten(t *testing.T) {
	t.Parallel()
	c := client(t, server(t).URL())
	d := driverOn(t, c, freshPrefix())
	a, b := d.claim("x", long), d.claim("x", long)
	grants(t, a)
	testkit.Must(t, c.HSet(t.Context(), a.key.waiters(), testkit.Owner(), "1 x", testkit.Owner(), "1 !").Err())
	b.ambiguous = true
	releases(t, b)
	left := c.HGetAll(t.Context(), a.key.waiters()).Val()
	if len(left) != 2 || !strings.HasSuffix(left[b.request.Owner], " x") || left[""] == "" {
		t.Errorf("left are %v, want only the claim that has just ended, and the countdown", left)
	}
	if ttl := c.PTTL(t.Context(), a.key.waiters()).Val(); ttl <= 0 || ttl > driver.MaxLate {
		t.Errorf("it is kept for %v, want %v", ttl, driver.MaxLate)
	}
	// Also if not as many were made lately as the countdown wants: all that it counts have ended with it.
	testkit.Must(t, c.HSet(t.Context(), a.key.waiters(), "", "1 x 100", testkit.Owner(), "1 !").Err())
	releases(t, b)
	if left := c.HGetAll(t.Context(), a.key.waiters()).Val(); len(left) != 2 {
		t.Errorf("left are %v after the end of the countdown", left)
	}
	releases(t, a)
}

// The engine does not release a refused TryLock. One that go-redis has sent twice releases
// itself.
func TestTryOnlyWithItsReplyLost(t *testing.T) {
	t.Parallel()
	s := server(t)
	c, proxy := via(t, s)
	prefix := freshPrefix()
	d, rival := driverOn(t, c, prefix), driverOn(t, client(t, s.URL()), prefix)
	warmUp(t, d)
	b := rival.claim("x", long)
	grants(t, b)
	a := d.tryOnly("x", long)
	proxy.CutReply(1)
	refuses(t, a)
	releases(t, b)
	if _, err := a.Try(t.Context()); !errors.Is(err, errReleased) {
		t.Errorf("the copy that arrives late: %v, want errReleased", err)
	}
}

// warmUp has the scripts cached and the connection opened, so that the next request
// is what the test says it is.
func warmUp(t *testing.T, d *store) {
	t.Helper()
	a := d.claim("warm-up", long)
	grants(t, a)
	if _, err := a.Renew(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	refuses(t, d.tryOnly("warm-up", long))
	releases(t, a)
}

// A Try of the holder that comes again does not shorten what a longer renewal has given, nor does a shorter renewal. If the
// lock was broken before, what it gets is another lock.
func TestLateTryOfTheHolder(t *testing.T) {
	t.Parallel()
	c := client(t, server(t).URL())
	d := driverOn(t, c, freshPrefix())
	a := d.claim("x", long)
	grants(t, a)
	late := d.claim("x", long)
	late.request.Owner = a.request.Owner
	for _, ttl := range []time.Duration{2 * long, time.Second} {
		if g, err := a.Renew(t.Context(), ttl); err != nil || g.TTL != ttl {
			t.Errorf("Renew for %v: %+v, %v", ttl, g, err)
		}
		grants(t, late)
		if left := c.PTTL(t.Context(), a.key.entry()).Val(); left < 2*long-10*time.Second {
			t.Errorf("after Renew for %v and a late Try, %v are left", ttl, left)
		}
	}
	testkit.Must(t, breakSeen(t.Context(), d, "x"))
	grants(t, late)
	if _, err := a.Renew(t.Context(), long); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("Renew after the late Try was granted anew: %v, want ErrLost", err)
	}
	releases(t, late)
}

func TestRenewBatch(t *testing.T) {
	t.Parallel()
	_, c := own(t)
	for _, split := range []bool{false, true} {
		t.Run(fmt.Sprintf("split=%v", split), func(t *testing.T) {
			d := driverOn(t, c, freshPrefix())
			d.split.Store(split)
			batch := make([]driver.Renewal, 500)
			for i := range batch {
				a := d.claim(fmt.Sprint("x", i), long)
				if i%7 != 0 {
					grants(t, a)
				}
				batch[i] = driver.Renewal{Claim: a, TTL: long + time.Duration(i)*time.Second}
			}
			for _, flushed := range []bool{false, true} {
				if flushed {
					flush(t, c)
				}
				d.Renew(t.Context(), batch)
				for i, r := range batch {
					switch {
					case i%7 == 0 && !errors.Is(r.Err, distlock.ErrLost):
						t.Fatalf("claim %d, which holds nothing: %v, want ErrLost", i, r.Err)
					case i%7 != 0 && (r.Err != nil || r.Grant.TTL > r.TTL || r.Grant.TTL < r.TTL-10*time.Second):
						t.Fatalf("claim %d, renewed for %v: %+v, %v", i, r.TTL, r.Grant, r.Err)
					}
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			d.Renew(ctx, batch)
			for i, r := range batch {
				if !errors.Is(r.Err, context.Canceled) {
					t.Fatalf("claim %d, on a context that is done: %v", i, r.Err)
				}
			}
		})
	}
}

func flush(t *testing.T, c *redis.Client) {
	t.Helper()
	testkit.Must(t, c.ScriptFlush(t.Context()).Err())
}

func TestScriptsAreFlushedBetweenAnyTwoRequests(t *testing.T) {
	t.Parallel()
	_, c := own(t)
	d := driverOn(t, c, freshPrefix())
	for range 2 {
		a, b := d.claim("x", long), d.claim("x", long)
		flush(t, c)
		grants(t, a)
		if a.ambiguous {
			t.Error("a script that was not known makes the outcome ambiguous")
		}
		flush(t, c)
		refuses(t, b)
		flush(t, c)
		if _, err := a.Renew(t.Context(), long); err != nil {
			t.Error(err)
		}
		flush(t, c)
		if st, err := d.Inspect(t.Context(), "x"); err != nil || !st.Held {
			t.Errorf("Inspect: %+v, %v", st, err)
		}
		flush(t, c)
		testkit.Should(t, breakSeen(t.Context(), d, "x"))
		flush(t, c)
		grants(t, b)
		flush(t, c)
		releases(t, b)
	}
}

func TestTokensRise(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), client(t, server(t).URL())
	d := driverOn(t, c, freshPrefix())
	a := d.claim("x", long)
	last := grants(t, a).Token
	rises := func(after string) {
		t.Helper()
		releases(t, a)
		g := grants(t, a)
		if g.Token <= last {
			t.Errorf("after %s the token is %d, it was %d", after, g.Token, last)
		}
		last = g.Token
	}
	rises("a release")
	c.Del(ctx, a.key.token())
	rises("the memory was lost")

	ahead := time.Now().Add(30 * time.Hour).UnixMicro()
	c.Set(ctx, a.key.token(), ahead, time.Hour)
	last = ahead
	rises("the clock went back by 30 hours")
	rises("that, once more")
	if ahead+2 != last {
		t.Errorf("the token is %d, want %d: one more each time", last, ahead+2)
	}
	if ttl := c.TTL(ctx, a.key.token()).Val(); ttl < 30*time.Hour+50*time.Minute || ttl > 31*time.Hour {
		t.Errorf("the memory of a token 30 hours ahead lasts for %v, want an hour more than these", ttl)
	}

	// A lock may be held for longer than its token is remembered.
	c.Del(ctx, a.key.token())
	testkit.Should(t, breakSeen(ctx, d, "x"))
	if g := grants(t, d.tryOnly("x", long)); g.Token <= last {
		t.Errorf("after Break the token is %d, it was %d", g.Token, last)
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	c := client(t, server(t).URL())
	l := lockerOn(t, c, &Options{Prefix: freshPrefix()})
	for _, name := range oddNames {
		lock, err := l.Lock(t.Context(), name)
		testkit.Must(t, err)
		if key := lock.(*Lock).Key(); c.Exists(t.Context(), key).Val() != 1 {
			t.Errorf("the lock %q says its key is %q, which does not exist", name, key)
		}
	}
	if list, err := l.List(t.Context(), ""); err != nil || len(list) != len(oddNames) {
		t.Errorf("List of %d names: %d, %v", len(oddNames), len(list), err)
	}
	if _, err := distlock.Sweep(t.Context(), l, time.Second); !errors.Is(err, distlock.ErrUnsupported) {
		t.Errorf("Sweep: %v; there is nothing to sweep, tokens are forgotten by themselves", err)
	}
}
