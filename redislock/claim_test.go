package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/redislock/internal/endpoint"
)

func TestTryAndRelease(t *testing.T) {
	t.Parallel()
	c, prefix := client(t, server(t).URL()), freshPrefix()
	d := driverOn(t, c, prefix)
	for _, name := range oddNames {
		a, b := d.claim(name, long), d.tryOnly(name, long)
		first := grants(t, a)
		if left := refuses(t, b); left <= long-time.Second || left > long {
			t.Fatalf("%.20q is said to be free in %v, its lease is %v", name, left, long)
		}
		if ttl := c.PTTL(t.Context(), a.key.entry()).Val(); ttl <= long-time.Second || ttl > long {
			t.Fatalf("the entry of %.20q lasts for %v", name, ttl)
		}
		if err := b.Release(t.Context()); err != nil {
			t.Fatalf("Release of a claim that never held %.20q: %v", name, err)
		}
		refuses(t, b)
		releases(t, a)
		if second := grants(t, b); second.Token <= first.Token {
			t.Fatalf("the token of %.20q was %d, then %d", name, first.Token, second.Token)
		}
		if err := a.Release(t.Context()); err != nil {
			t.Fatalf("Release once more: %v", err)
		}
		refuses(t, a)
		releases(t, a)
		releases(t, b)
	}
	if left := leftovers(t, c, prefix); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

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

// A request is sent twice if its reply was lost. The second one gets the answer that the first
// one would have had.
func TestTryWithItsReplyLost(t *testing.T) {
	t.Parallel()
	s := server(t)
	c, proxy := via(t, s)
	prefix := freshPrefix()
	d, rival := driverOn(t, c, prefix), driverOn(t, client(t, s.URL()), prefix)
	warmUp(t, d)

	a := d.claim("x", long)
	proxy.CutReply(1)
	g := grants(t, a) // go-redis sends it again
	if proxy.Fired() != 1 {
		t.Fatal("no reply was cut")
	}
	if stored := rival.client.Get(t.Context(), a.key.token()).Val(); stored != strconv.FormatInt(g.Token, 10) {
		t.Errorf("granted %d, stored %s: the second request was a second grant", g.Token, stored)
	}
	refuses(t, rival.tryOnly("x", long))

	w := d.claim("x", long)
	rivalHolds := func() int64 { return rival.client.LLen(t.Context(), w.key.queue()).Val() }
	b := rival.claim("x", long)
	releases(t, a)
	grants(t, b)
	proxy.CutReply(1)
	refuses(t, w)
	if n := rivalHolds(); n != 1 {
		t.Errorf("the waiter is in the queue %d times", n)
	}
	releases(t, w)
	releases(t, b)
}

// A Try that was overtaken by its Release, in whatever socket it was stuck, must not
// take the name for a caller that has left.
func TestTryThatArrivesLate(t *testing.T) {
	t.Parallel()
	s, _ := own(t)
	c, proxy := via(t, s)
	prefix := freshPrefix()
	d, rival := driverOn(t, c, prefix), driverOn(t, client(t, s.URL()), prefix)
	warmUp(t, d)
	for _, noWait := range []bool{false, true} {
		name := fmt.Sprint("x", noWait)
		a := d.claim(name, long)
		a.request.NoWait = noWait
		before := proxy.Fired()
		proxy.HoldRequest(1)
		ctx, cancel := context.WithCancel(t.Context())
		tried := make(chan error, 1)
		go func() { tried <- second(a.Try(ctx)) }()
		testkit.Until(t, "the request is under way", func() bool { return proxy.Fired() > before })
		cancel()
		if err := <-tried; !errors.Is(err, context.Canceled) {
			t.Fatalf("Try without an answer: %v, want the error of its context", err)
		}
		releases(t, a)
		scripts := scriptRuns(t, rival)
		proxy.Release()
		testkit.Until(t, "the late request has arrived", func() bool { return scriptRuns(t, rival) > scripts })
		b := rival.tryOnly(name, long)
		for range 50 {
			grants(t, b)
			releases(t, b)
		}
		if _, err := a.Try(t.Context()); !errors.Is(err, errReleased) {
			t.Errorf("Try after Release: %v, want errReleased", err)
		}
		st, err := rival.Inspect(t.Context(), name)
		if err != nil || st.Waiters != 0 || st.Held {
			t.Errorf("a claim that has ended shows as %+v, %v", st, err)
		}
	}
}

// scriptRuns returns how many scripts the server has run by their digest.
func scriptRuns(t *testing.T, d *store) (n int) {
	t.Helper()
	_, stats, found := strings.Cut(d.client.Info(t.Context(), "commandstats").Val(), "cmdstat_evalsha:calls=")
	if _, err := fmt.Sscanf(stats, "%d,", &n); err != nil || !found {
		t.Fatal("the server does not count its commands")
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
	must(t, c.HSet(t.Context(), a.key.waiters(), owner(), "1 x", owner(), "1 !").Err())
	b.ambiguous = true
	releases(t, b)
	left := c.HGetAll(t.Context(), a.key.waiters()).Val()
	if len(left) != 2 || !strings.HasSuffix(left[b.request.Owner], " x") || left[""] == "" {
		t.Errorf("left are %v, want only the claim that has just ended, and the countdown", left)
	}
	if ttl := c.PTTL(t.Context(), a.key.waiters()).Val(); ttl <= 0 || ttl > endpoint.TombstoneTime {
		t.Errorf("it is kept for %v, want %v", ttl, endpoint.TombstoneTime)
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

func TestReleaseWithItsReplyLost(t *testing.T) {
	t.Parallel()
	s := server(t)
	c, proxy := via(t, s)
	prefix := freshPrefix()
	d, rival := driverOn(t, c, prefix), driverOn(t, client(t, s.URL()), prefix)
	warmUp(t, d)
	a := d.claim("x", long)
	grants(t, a)
	proxy.CutReply(1)
	// The driver cannot know: go-redis sends it again, and that finds nothing. It must not say
	// ErrLost.
	if err := a.Release(t.Context()); err == nil || errors.Is(err, distlock.ErrLost) {
		t.Errorf("Release whose reply was lost: %v, want that it is ambiguous", err)
	}
	b := rival.tryOnly("x", long)
	grants(t, b)
	if err := a.Release(t.Context()); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("Release again: %v, want ErrLost", err)
	}
	releases(t, b)

	// The engine knows: the lock was held when the first request went out.
	l, err := lockerOn(t, c, &Options{Prefix: prefix}).Lock(t.Context(), "y")
	if err != nil {
		t.Fatal(err)
	}
	fired := proxy.Fired()
	proxy.CutReply(1)
	if err := l.Unlock(t.Context()); err != nil || proxy.Fired() != fired+1 {
		t.Errorf("Unlock whose first reply was lost: %v; %d replies cut", err, proxy.Fired()-fired)
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

func TestRenew(t *testing.T) {
	t.Parallel()
	c := client(t, server(t).URL())
	d := driverOn(t, c, freshPrefix())
	a := d.claim("x", long)
	g := grants(t, a)
	renewed, err := a.Renew(t.Context(), 2*long)
	if err != nil || renewed.TTL != 2*long || renewed.Token != g.Token {
		t.Errorf("Renew for %v: %+v, %v", 2*long, renewed, err)
	}
	renewed, err = a.Renew(t.Context(), time.Second)
	if err != nil || renewed.TTL != time.Second {
		t.Errorf("Renew for a second: %+v, %v, want a second, though more is left", renewed, err)
	}
	if left := c.PTTL(t.Context(), a.key.entry()).Val(); left < 2*long-10*time.Second {
		t.Errorf("Renew for a second has shortened the lease to %v", left)
	}
	late := d.claim("x", long) // a Try of the holder that comes again
	late.request.Owner = a.request.Owner
	grants(t, late)
	if left := c.PTTL(t.Context(), a.key.entry()).Val(); left < 2*long-10*time.Second {
		t.Errorf("a late Try has shortened the lease to %v", left)
	}

	lost := func(why string) {
		t.Helper()
		if _, err := a.Renew(t.Context(), long); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Renew after %s: %v, want ErrLost", why, err)
		}
	}
	if err := breakSeen(t.Context(), d, "x"); err != nil {
		t.Fatal(err)
	}
	lost("Break")
	if n := c.Exists(t.Context(), a.key.entry()).Val(); n != 0 {
		t.Error("Renew has brought an entry back")
	}
	b := d.tryOnly("x", long)
	grants(t, b)
	lost("another took the name")
	if left := c.PTTL(t.Context(), a.key.entry()).Val(); left > long {
		t.Errorf("Renew of a lost lock has prolonged another's to %v", left)
	}
	releases(t, b)
	grants(t, late)
	lost("a late Try of its own was granted anew")
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
	if err := c.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
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
		if err := breakSeen(t.Context(), d, "x"); err != nil {
			t.Error(err)
		}
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
	c.Set(ctx, a.key.token(), ahead, time.Second)
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
	if err := breakSeen(ctx, d, "x"); err != nil {
		t.Error(err)
	}
	if g := grants(t, d.tryOnly("x", long)); g.Token <= last {
		t.Errorf("after Break the token is %d, it was %d", g.Token, last)
	}
}

func TestBreakEndsTheHoldThatItSaw(t *testing.T) {
	t.Parallel()
	c := client(t, server(t).URL())
	d := driverOn(t, c, freshPrefix())
	if err := breakSeen(t.Context(), d, "x"); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("Break of a free name: %v, want ErrLost", err)
	}
	a := d.claim("x", long)
	grants(t, a)
	seen, err := d.Inspect(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	releases(t, a)
	b := d.claim("x", long)
	grants(t, b)
	if err := d.Break(t.Context(), "x", seen.Token); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("a late Break: %v, want ErrLost", err)
	}
	if _, err := b.Renew(t.Context(), long); err != nil {
		t.Errorf("a late Break has ended another hold: %v", err)
	}
	releases(t, b)
}

func TestInspectAndList(t *testing.T) {
	t.Parallel()
	c := client(t, server(t).URL())
	prefix := freshPrefix()
	l := lockerOn(t, c, &Options{Prefix: prefix})
	before := time.Now().Add(-time.Second)
	for _, name := range oddNames {
		lock, err := l.Lock(t.Context(), name, distlock.Holder("who holds "+strconv.Itoa(len(name))))
		if err != nil {
			t.Fatal(err)
		}
		if key := lock.(*Lock).Key(); c.Exists(t.Context(), key).Val() != 1 {
			t.Errorf("the lock %q says its key is %q, which does not exist", name, key)
		}
		st, err := l.Inspect(t.Context(), name)
		if err != nil || st.Name != name || !st.Held || st.Token != lock.Token() || st.Waiters != 0 ||
			st.Holder != "who holds "+strconv.Itoa(len(name)) || st.Remaining > distlock.DefaultTTL ||
			st.AcquiredAt.Before(before) || st.AcquiredAt.After(time.Now().Add(time.Second)) {
			t.Errorf("Inspect of %q: %+v, %v", name, st, err)
		}
	}
	for _, start := range []string{"", "x", "x%", "{", "*", "none"} {
		list, err := l.List(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		for _, name := range oddNames {
			if strings.HasPrefix(name, start) {
				want++
			}
		}
		if len(list) != want {
			t.Errorf("List of %q returns %d names, want %d: %v", start, len(list), want, list)
		}
		for i := range list {
			if i > 0 && list[i-1].Name >= list[i].Name {
				t.Errorf("List of %q has %q before %q", start, list[i-1].Name, list[i].Name)
			}
		}
	}
	if _, err := distlock.Sweep(t.Context(), l, time.Second); !errors.Is(err, distlock.ErrUnsupported) {
		t.Errorf("Sweep: %v; there is nothing to sweep, tokens are forgotten by themselves", err)
	}
}
