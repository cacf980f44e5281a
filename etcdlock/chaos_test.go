package etcdlock

import (
	"context"
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// Whatever becomes of requests, no two hold a name at once, tokens rise, and soon
// after the last fault all names are free, though requests from before it still come.
func testChaos(t *testing.T, s *servers.Server) {
	const names, processes = 3, 3
	faults := []fault{loseReply, late, broken, brokenLate, silent, hang, overQuota, deposed}
	options := [][]distlock.Option{nil, nil, {distlock.NoRenewal()}, {distlock.TTL(2 * time.Second)}}
	st := &fixture{t: t, store: &store{prefix: rand.Text() + "/"}, admin: newClient(t, s.Addr())}
	var mu sync.Mutex
	last := make(map[string]distlock.Lock)
	won := func(lock distlock.Lock) {
		mu.Lock()
		defer mu.Unlock()
		before := last[lock.Name()]
		if before != nil && before.Err() == nil && lock.Err() == nil {
			t.Errorf("two holders of %s, with the tokens %d and %d", lock.Name(), before.Token(), lock.Token())
		}
		if before != nil && before.Token() >= lock.Token() {
			t.Errorf("token %d of %s after %d", lock.Token(), lock.Name(), before.Token())
		}
		last[lock.Name()] = lock
	}
	var lockers []*Locker
	var wires []*wire
	for range processes {
		w := newWire()
		l, err := New(w.client(t, s.Addr()), &Options{Prefix: st.prefix, Options: distlock.Options{TTL: time.Second}})
		testkit.Must(t, err)
		w.faults(func(string) fault {
			if mrand.N(12) > 0 {
				return pass
			}
			return faults[mrand.N(len(faults))]
		})
		lockers, wires = append(lockers, l), append(wires, w)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var users sync.WaitGroup
	for i, l := range lockers {
		for range 4 {
			users.Go(func() {
				for ctx.Err() == nil {
					useOnce(ctx, l, fmt.Sprint(mrand.N(names)), options[mrand.N(len(options))], won)
				}
			})
		}
		users.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(mrand.N(300 * time.Millisecond))
				wires[i].deliver()
			}
		})
	}
	users.Wait()
	for _, w := range wires {
		w.faults(nil)
	}
	st.eventually("all is given back", func() bool { return len(st.keys()) == 0 })
	for _, w := range wires {
		w.deliver()
	}
	st.wantKeys(0)
	for _, l := range lockers {
		if err := l.Close(); err != nil {
			t.Error("Close:", err)
		}
	}
	st.eventually("the leases are gone, and what lives by them", func() bool {
		resp, err := st.admin.Get(t.Context(), st.prefix, clientv3.WithPrefix())
		return err == nil && len(resp.Kvs) == 0
	})
}

// useOnce takes a lock, if it can, and gives it back.
func useOnce(ctx context.Context, l *Locker, name string, opts []distlock.Option, won func(distlock.Lock)) {
	ctx, cancel := context.WithTimeout(ctx, mrand.N(1500*time.Millisecond))
	defer cancel()
	acquire := l.Lock
	if mrand.N(2) == 0 {
		acquire = l.TryLock
	}
	lock, err := acquire(ctx, name, opts...)
	if err != nil {
		return
	}
	won(lock)
	if mrand.N(4) == 0 {
		_ = lock.Extend(ctx, 2*time.Second)
	}
	time.Sleep(mrand.N(20 * time.Millisecond))
	_ = lock.Unlock(ctx)
}
