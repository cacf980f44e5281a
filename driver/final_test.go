package driver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

var errClientClosed = errors.New("client: is closed")

// clientClosed is what a driver answers once its client library was closed.
func clientClosed(context.Context, memlock.Call, func()) (bool, error) {
	return true, fmt.Errorf("%w: %w", distlock.ErrClosed, errClientClosed)
}

// What the client library says for good ends a lock at once, and is not repeated.
func TestFinalErrors(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, rival *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(3*time.Second))
		released := mustLock(t, bg, l, "y", distlock.TTL(time.Hour))
		mustLock(t, bg, rival, "z", distlock.TTL(time.Hour), distlock.NoRenewal())
		waiting := make(chan error)
		go func() {
			_, err := l.Lock(bg, "z")
			waiting <- err
		}()
		synctest.Wait()
		start, before := time.Now(), n.count("release")
		n.use(clientClosed)
		<-lock.Done()
		if d := time.Since(start); d > 1100*time.Millisecond {
			t.Errorf("told after %v, want the next renewal, after 1s", d)
		}
		wantErr(t, "Err", lock.Err(), distlock.ErrLost)
		wantErr(t, "Err", lock.Err(), errClientClosed)
		if err := <-waiting; !errors.Is(err, errClientClosed) || errors.Is(err, distlock.ErrHeld) {
			t.Errorf("the waiting Lock: %v", err)
		}

		wantErr(t, "Unlock", released.Unlock(bg), errClientClosed)
		time.Sleep(time.Minute)
		if got := n.count("release") - before; got != 3 {
			t.Errorf("%d releases of x, y and the claim of z, want each once", got)
		}
		before = n.count("release")
		for _, acquire := range []func(context.Context, string, ...distlock.Option) (distlock.Lock, error){l.Lock, l.TryLock} {
			_, err := acquire(bg, "w")
			wantErr(t, "acquire", err, errClientClosed)
		}
		time.Sleep(time.Minute)
		if got := n.count("release") - before; got != 0 {
			t.Errorf("%d releases of attempts that were refused for good", got)
		}
	})
}

func TestCloseOnClosedClient(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		for i := range 100 {
			mustLock(t, bg, l, fmt.Sprint("x", i))
		}
		n.use(clientClosed)
		start := time.Now()
		wantErr(t, "Close", l.Close(), errClientClosed)
		if d := time.Since(start); d != 0 {
			t.Errorf("Close took %v", d)
		}
		if got := n.count("release"); got != 100 {
			t.Errorf("%d releases of 100 locks", got)
		}
	})
}

// neverCloses is a driver whose client library waits for a silent server.
type neverCloses struct {
	driver.Driver
	forever chan struct{}
}

func (d *neverCloses) Close() error {
	<-d.forever
	return nil
}

func TestCloseOfADriverThatHangs(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("busy=%v", busy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := new(network)
				store := memlock.NewStore(&memlock.StoreOptions{Intercept: n.intercept})
				d := &neverCloses{memlock.NewDriver(store), make(chan struct{})}
				defer close(d.forever)
				l, err := driver.New(d, nil)
				testkit.Must(t, err)
				mustLock(t, bg, l, "x")
				if busy {
					n.use(on("release", hangs(t)))
				}
				start := time.Now()
				err = l.Close()
				if d := time.Since(start); err == nil || d > 12*time.Second {
					t.Errorf("Close: %v after %v", err, d)
				}
			})
		})
	}
}

// A loss that nobody knew of before Unlock is told like any other.
func TestLossThatUnlockFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var lost []distlock.Lost
		released := 0
		n, l, rival := faulty(t, &memlock.Options{Options: distlock.Options{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Observer: &distlock.Observer{
				Lost:     func(e distlock.Lost) { lost = append(lost, e) },
				Released: func(distlock.Released) { released++ },
			},
		}})
		for _, unlock := range []func(distlock.Lock) error{
			func(lock distlock.Lock) error { return lock.Unlock(bg) },
			func(distlock.Lock) error { return l.Close() },
		} {
			lock := mustLock(t, bg, l, "x", distlock.TTL(3*time.Second))
			n.use(on("renew", requestLost))
			time.Sleep(1100 * time.Millisecond) // a renewal has failed
			testkit.Must(t, distlock.Break(healthy(), rival, "x", 0))
			if err := unlock(lock); !errors.Is(lock.Unlock(bg), distlock.ErrLost) {
				t.Errorf("released: %v, and Unlock says %v", err, lock.Unlock(bg))
			}
			n.use()
		}
		synctest.Wait()
		if len(lost) != 2 || released != 0 {
			t.Fatalf("the observer was told of %d losses and %d releases, want 2 and 0", len(lost), released)
		}
		wantErr(t, "Cause", lost[0].Cause, distlock.ErrLost)
		wantErr(t, "Cause", lost[0].Cause, errBroken)
		if got := strings.Count(log.String(), "lock lost"); got < 2 || !strings.Contains(log.String(), errBroken.Error()) {
			t.Errorf("the log does not tell of both losses, and why the last renewal failed:\n%s", &log)
		}
	})
}

// A loss says what the store has said of the renewals, also if the last of them, which
// had hardly any time, got no answer, or if the driver answered for each entry alone.
func TestLossSaysWhatTheStoreSaid(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, l, _ *memlock.Locker) {
		lock := mustLock(t, bg, l, "x", distlock.TTL(3*time.Second))
		n.use(once(on("renew", requestLost)), on("renew", stuck))
		<-lock.Done()
		wantErr(t, "Err", lock.Err(), distlock.ErrLost)
		wantErr(t, "Err", lock.Err(), errBroken)
		if text := "lock lost: not renewed before its deadline; the last request that failed before: " + errBroken.Error(); !strings.HasSuffix(lock.Err().Error(), text) {
			t.Errorf("Err: %v, want %s", lock.Err(), text)
		}
	})
}
