package driver_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// plain is a driver without anything optional, which renews one by one.
type plain struct{ driver.Driver }

func (d plain) Renew(ctx context.Context, batch []driver.Renewal) {
	driver.RenewEach(ctx, batch, func(ctx context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		return renewOne(ctx, d.Driver, c, ttl)
	})
}

// renewOne has d renew one claim.
func renewOne(ctx context.Context, d driver.Driver, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
	one := []driver.Renewal{{Claim: c, TTL: ttl}}
	d.Renew(ctx, one)
	return one[0].Grant, one[0].Err
}

// A renewal that hangs must take along neither the renewals nor the Unlock of other
// locks.
func TestHangingRenewalIsAlone(t *testing.T) {
	t.Run("renewal", func(t *testing.T) {
		beside(t, func(locks []distlock.Lock) {
			time.Sleep(2 * time.Minute)
			for _, lock := range locks {
				testkit.Should(t, lock.Err())
			}
		})
	})
	t.Run("unlock", func(t *testing.T) {
		beside(t, func(locks []distlock.Lock) {
			time.Sleep(11 * time.Second) // the renewals are under way
			for _, lock := range locks {
				start := time.Now()
				if err := lock.Unlock(bg); err != nil || time.Since(start) > 0 {
					t.Errorf("Unlock: %v after %v", err, time.Since(start))
				}
			}
		})
	})
}

// beside runs f with locks of a driver without batches. The renewals of other locks of
// their Locker hang.
func beside(t *testing.T, f func(locks []distlock.Lock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := new(network)
		store := memlock.NewStore(&memlock.StoreOptions{Intercept: n.intercept})
		l, err := driver.New(plain{memlock.NewDriver(store)}, nil)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = l.Close() }) // it cannot release all
		hang := hangs(t)
		n.use(on("renew", func(ctx context.Context, c memlock.Call, apply func()) (bool, error) {
			if strings.HasPrefix(c.Name, "stuck") {
				return hang(ctx, c, apply)
			}
			return false, nil
		}))
		var locks []distlock.Lock
		for i := range 180 {
			if i%20 == 0 {
				mustLock(t, bg, l, fmt.Sprint("stuck", i))
			}
			locks = append(locks, mustLock(t, bg, l, fmt.Sprint("x", i)))
		}
		f(locks)
	})
}

// The renewals of short leases have little time. They must not take it from those of
// long leases.
func TestShortLeasesDoNotStarveLongOnes(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		n.use(on("renew", late(150*time.Millisecond)))
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		for i := range 20 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 15 * time.Millisecond)
				for ctx.Err() == nil {
					short, err := l.Lock(ctx, fmt.Sprint("short", i), distlock.TTL(300*time.Millisecond))
					if err != nil {
						return
					}
					<-short.Done()
				}
			})
		}
		long := mustLock(t, bg, l, "long", distlock.TTL(6*time.Second))
		time.Sleep(30 * time.Second)
		testkit.Should(t, long.Err())
	})
}

// A backend that fails loses all locks at once. It must not get as many calls at
// once when they are cleaned up, and has nothing of them left in the end.
func TestMassLoss(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		const locks, limit = 400, 100
		for i := range locks {
			mustLock(t, bg, l, fmt.Sprint("x", i))
			time.Sleep(time.Millisecond)
		}
		var mu sync.Mutex
		running, most := 0, 0
		n.use(func(ctx context.Context, _ memlock.Call, _ func()) (bool, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			running--
			mu.Unlock()
			return true, ctx.Err()
		})
		time.Sleep(40 * time.Second)
		n.use()
		mu.Lock()
		peak := most
		mu.Unlock()
		if peak > limit {
			t.Errorf("%d calls at the same time for %d locks, want %d at the most", peak, locks, limit)
		}
		before := n.count("release")
		time.Sleep(time.Minute)
		if got := n.count("release") - before; got < locks {
			t.Errorf("%d releases once the backend was back, want one for each of %d locks", got, locks)
		}
	})
}

// What the scheduler still knows of a lock must not outlive its release.
func TestReleasedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan struct{})
		o := &memlock.Options{Options: distlock.Options{Observer: &distlock.Observer{
			Lost: func(distlock.Lost) { <-told },
		}}}
		_, l, rival := faulty(t, o)
		h := func() weak.Pointer[driver.Handle] {
			lock := mustLock(t, bg, l, "x", distlock.TTL(24*time.Hour))
			testkit.Must(t, distlock.Break(bg, rival, "x", 0))
			wantErr(t, "Extend", lock.Extend(bg, time.Second), distlock.ErrLost)
			wantErr(t, "Unlock", lock.Unlock(bg), distlock.ErrLost)
			synctest.Wait()
			close(told)
			synctest.Wait()
			h, _ := distlock.As[*driver.Handle](lock)
			return weak.Make(h)
		}()
		mustLock(t, bg, l, "y")
		time.Sleep(time.Second)
		synctest.Wait()
		runtime.GC()
		runtime.GC()
		if h.Value() != nil {
			t.Error("a lock that has been released is still kept")
		}
	})
}

// A call that never returns must not keep Extend from seeing the end of the lock.
func TestExtendBesideHangingCall(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(3*time.Second))
		n.use(on("renew", hangs(t)))
		time.Sleep(1500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		wantErr(t, "Extend", lock.Extend(ctx, time.Second), distlock.ErrLost)
		wantErr(t, "Extend again", lock.Extend(ctx, time.Second), distlock.ErrLost)
	})
}

// The end of somebody's context is not why a lock is lost.
func TestCancelledExtendIsNoCause(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(time.Minute), distlock.NoRenewal())
		n.use(on("renew", stuck))
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		wantErr(t, "Extend", lock.Extend(ctx, time.Minute), context.DeadlineExceeded)
		<-lock.Done()
		wantErr(t, "Err", lock.Err(), distlock.ErrLost)
		if errors.Is(lock.Err(), context.DeadlineExceeded) {
			t.Errorf("Err: %v", lock.Err())
		}
	})
}
