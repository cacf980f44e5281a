package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// onServer are the tests that share a server; each has a prefix of its own.
var onServer = map[string]func(t *testing.T, s *servers.Server){
	"Batch":                         testBatch,
	"BatchOfReleases":               testBatchOfReleases,
	"BatchedNames":                  testBatchedNames,
	"BatchedFixedTerm":              testBatchedFixedTerm,
	"BatchBehindHung":               testBatchBehindHung,
	"LostReplyOfTry":                testLostReplyOfTry,
	"LateTry":                       testLateTry,
	"LateTryThatWasRefused":         testLateTryThatWasRefused,
	"ReleaseWithoutLease":           testReleaseWithoutLease,
	"Orphan":                        testOrphan,
	"OrphanAfterCleanUp":            testOrphanAfterCleanUp,
	"LateGrant":                     testLateGrant,
	"RefusedWithoutCleanUp":         testRefusedWithoutCleanUp,
	"StuckKey":                      testStuckKey,
	"ReleaseFillsStore":             testReleaseFillsStore,
	"LostReplyOfRelease":            testLostReplyOfRelease,
	"LostReplyOfRevoke":             testLostReplyOfRevoke,
	"RefusedFixedTermWritesNothing": testRefusedFixedTermWritesNothing,
	"LeaseDiesUnderWaiter":          testLeaseDiesUnderWaiter,
	"DeletedWaiter":                 testDeletedWaiter,
	"MoveToLongerLease":             testMoveToLongerLease,
	"LateMove":                      testLateMove,
	"MoveToDeadLease":               testMoveToDeadLease,
	"MoveRefusedLater":              testMoveRefusedLater,
	"MoveOfLostLock":                testMoveOfLostLock,
	"OneStreamForAllWaiters":        testOneStreamForAllWaiters,
	"KeyIsUsedAgain":                testKeyIsUsedAgain,
	"LateWritesMeetNobody":          testLateWritesMeetNobody,
	"CopiedProcess":                 testCopiedProcess,
	"CopiedProcessFails":            testCopiedProcessFails,
	"CopiedLease":                   testCopiedLease,
	"KeyMadeAnew":                   testKeyMadeAnew,
	"WatchIsUsedAgain":              testWatchIsUsedAgain,
	"Requests":                      testRequests,
	"ManyLocks":                     testManyLocks,
	"LeaseDiesUnderHolders":         testLeaseDiesUnderHolders,
	"TamperedKeys":                  testTamperedKeys,
	"LostReplyOfGrant":              testLostReplyOfGrant,
	"KeySpaceStays":                 testKeySpaceStays,
	"EndOfTheClientsContext":        testEndOfTheClientsContext,
	"GrantOfLeavers":                testGrantOfLeavers,
	"GrantedTTL":                    testGrantedTTL,
	"KeptOnClose":                   testKeptOnClose,
	"Cmp":                           testCmp,
	"WatchBeginsNow":                testWatchBeginsNow,
	"Look":                          testLook,
	"LookTogether":                  testLookTogether,
	"LookOfFixedTerm":               testLookOfFixedTerm,
	"WatchesBeginInTurn":            testWatchesBeginInTurn,
	"Inspect":                       testInspect,
	"LongList":                      testLongList,
	"HungRequests":                  testHungRequests,
	"HungKeepAliveOfAnother":        testHungKeepAliveOfAnother,
	"ReadsOfRenewal":                testReadsOfRenewal,
	"HungMove":                      testHungMove,
	"NothingGoesOn":                 testNothingGoesOn,
	"TimedOutTry":                   testTimedOutTry,
	"BrokenTry":                     testBrokenTry,
	"BrokenRenewal":                 testBrokenRenewal,
	"HungRelease":                   testHungRelease,
	"UnansweredRelease":             testUnansweredRelease,
	"HungClose":                     testHungClose,
	"CloseHungStream":               testCloseHungStream,
	"HungWatch":                     testHungWatch,
	"RefusedWatch":                  testRefusedWatch,
	"Deposed":                       testDeposed,
	"OverQuota":                     testOverQuota,
	"FateOfTry":                     testFateOfTry,
	"LeaseOfOwnTTL":                 testLeaseOfOwnTTL,
	"ClosedClient":                  testClosedClient,
	"Probe":                         testProbe,
	"ResetStream":                   testResetStream,
	"TLS":                           testTLS,
	"Chaos":                         testChaos,
}

func TestOnServer(t *testing.T) {
	t.Parallel()
	s := servers.ForTest(t, servers.Etcd)
	for name, test := range onServer {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

// ownServer starts a server for one test, which may kill it, or change it for all of its clients.
func ownServer(t testing.TB) *servers.Server {
	t.Helper()
	s := servers.ForTest(t, servers.Etcd)
	if !s.Controlled() {
		t.Skip("a server given by URL is not the test's to kill or to change")
	}
	return s
}

// newClient returns a client of the test's own, past the driver.
func newClient(t testing.TB, addr string) *clientv3.Client {
	t.Helper()
	return newWire().client(t, addr)
}

// store is a prefix on a server, a driver on it with a wire for its requests, and a
// client past the wire.
type fixture struct {
	t testing.TB
	*store
	wire  *wire
	admin *clientv3.Client
}

func newStore(t testing.TB, s *servers.Server) *fixture {
	t.Helper()
	return storeAt(t, s, rand.Text()+"/")
}

// storeAt is another process on the same prefix.
func storeAt(t testing.TB, s *servers.Server, prefix string) *fixture {
	t.Helper()
	w := newWire()
	d, err := newDriver(w.client(t, s.Addr()), prefix, false)
	testkit.Must(t, err)
	st := &fixture{t: t, store: d, wire: w, admin: newClient(t, s.Addr())}
	t.Cleanup(func() { testkit.Should(t, d.Close()) })
	return st
}

// counted has each request sent once, however late its answer is: the test counts them.
func (st *fixture) counted() *fixture {
	st.store.copies = 1
	return st
}

// lasts renews a claim with a lease that nothing else keeps alive, which is over if the machine was late for that long.
func (st *fixture) lasts(c *claim) {
	st.t.Helper()
	lasted := c.lease.lasts(time.Now())
	switch err := st.renew(c)[0]; {
	case err != nil && !lasted:
		st.t.Fatal("inconclusive: the machine was late: the lease was over when it was renewed:", err)
	case err != nil:
		st.t.Fatal("the renewal:", err)
	}
}

// claim makes a claim with a TTL of 30 s, changed by with unless with is nil.
func (st *fixture) claim(name string, with func(*driver.Request)) *claim {
	r := driver.Request{Name: name, Owner: testkit.Owner(), TTL: 30 * time.Second, Holder: "tester"}
	if with != nil {
		with(&r)
	}
	return st.Claim(r).(*claim)
}

func noWait(r *driver.Request)    { r.NoWait = true }
func noRenewal(r *driver.Request) { r.NoRenewal = true }

// won makes a claim that holds the name.
func (st *fixture) won(name string, with func(*driver.Request)) *claim {
	st.t.Helper()
	c := st.claim(name, with)
	st.grant(c)
	return c
}

// try tries as the engine does: again while the driver says that this may help at once.
func (st *fixture) try(c *claim) (g driver.Grant, err error) {
	for {
		if g, err = c.Try(st.t.Context()); driver.FateOf(err) != driver.Again {
			return g, err
		}
	}
}

// grant tries and must win.
func (st *fixture) grant(c *claim) driver.Grant {
	st.t.Helper()
	g, err := st.try(c)
	if err != nil {
		st.t.Fatalf("Try: %v", err)
	}
	return g
}

// unheard makes one attempt, and its transaction must have no answer.
func (st *fixture) unheard(c *claim, f fault) {
	st.t.Helper()
	st.wire.next("Txn", f)
	if _, err := c.Try(st.t.Context()); err == nil || errors.Is(err, distlock.ErrHeld) {
		st.t.Fatalf("Try: %v, want the client's error", err)
	}
}

// held tries and must be told that the name is held.
func (st *fixture) held(c *claim) {
	st.t.Helper()
	if _, err := st.try(c); !errors.Is(err, distlock.ErrHeld) {
		st.t.Fatalf("Try: %v, want ErrHeld", err)
	}
}

func (st *fixture) release(c *claim, want error) {
	st.t.Helper()
	if err := c.Release(st.t.Context()); !errors.Is(err, want) {
		st.t.Fatalf("Release: %v, want %v", err, want)
	}
}

// renew renews claims in one batch and returns their errors.
func (st *fixture) renew(claims ...*claim) []error {
	batch := make([]driver.Renewal, len(claims))
	for i, c := range claims {
		batch[i] = driver.Renewal{Claim: c, TTL: c.request.TTL}
	}
	st.Renew(st.t.Context(), batch)
	errs := make([]error, len(claims))
	for i, c := range claims {
		if errs[i] = batch[i].Err; driver.FateOf(errs[i]) == driver.Again {
			_, errs[i] = c.Renew(st.t.Context(), c.request.TTL)
		}
	}
	return errs
}

// keys returns the keys of claims, as the server has them.
func (st *fixture) keys() []*mvccpb.KeyValue {
	st.t.Helper()
	resp, err := st.admin.Get(st.t.Context(), st.prefix, clientv3.WithPrefix())
	testkit.Must(st.t, err)
	return slices.DeleteFunc(resp.Kvs, func(kv *mvccpb.KeyValue) bool {
		_, of := st.name(string(kv.Key))
		return !of // a tombstone
	})
}

func (st *fixture) wantKeys(n int) {
	st.t.Helper()
	if kvs := st.keys(); len(kvs) != n {
		st.t.Fatalf("%d keys, want %d: %v", len(kvs), n, kvs)
	}
}

// exists reports whether the server knows the lease.
func (st *fixture) exists(l *lease) bool {
	st.t.Helper()
	resp, err := st.admin.TimeToLive(st.t.Context(), l.id)
	testkit.Must(st.t, err)
	return resp.GrantedTTL != 0
}

func (st *fixture) revokeAsAdmin(l *lease) {
	st.t.Helper()
	if _, err := st.admin.Revoke(st.t.Context(), l.id); err != nil {
		st.t.Fatal(err)
	}
}

// waiting calls Wait in the background and returns the channel that tells its outcome.
func (st *fixture) waiting(c *claim) <-chan error {
	done := make(chan error, 1)
	go func() { done <- c.Wait(st.t.Context()) }()
	return done
}

// woken waits until a Wait has returned, because there was something to see.
func (st *fixture) woken(done <-chan error) {
	st.t.Helper()
	if err := <-done; err != nil {
		st.t.Fatalf("Wait: %v, want to be woken", err)
	}
}

func isKey(key string) func(*mvccpb.KeyValue) bool {
	return func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == key }
}

// eventually waits until ok returns true.
func (st *fixture) eventually(what string, ok func() bool) {
	st.t.Helper()
	testkit.Until(st.t, what, ok)
}

// breakSeen ends whatever hold there is on a name; ErrLost if there is none.
func breakSeen(ctx context.Context, d interface {
	driver.Inspector
	driver.Breaker
}, name string) error {
	st, err := d.Inspect(ctx, name)
	if err != nil {
		return err
	}
	return d.Break(ctx, name, max(st.Token, 1))
}

// Renew renews the claim alone, again while the driver says that this may help at once.
func (c *claim) Renew(ctx context.Context, ttl time.Duration) (driver.Grant, error) {
	for {
		batch := []driver.Renewal{{Claim: c, TTL: ttl}}
		c.store.Renew(ctx, batch)
		if driver.FateOf(batch[0].Err) != driver.Again {
			return batch[0].Grant, batch[0].Err
		}
	}
}

// dialed makes the store that Open would make of a URL, with more options of the connection. The
// caller closes it, before ctx ends.
func dialed(ctx context.Context, t *testing.T, url string, more ...grpc.DialOption) *store {
	t.Helper()
	config, opts, err := parse(url, nil)
	testkit.Must(t, err)
	config.DialOptions = append(config.DialOptions, more...)
	client, err := dial(ctx, config, opts.Prefix)
	testkit.Must(t, err)
	st, err := newDriver(client, opts.Prefix, true)
	testkit.Must(t, err)
	return st
}
