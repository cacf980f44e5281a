package etcdlock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"path"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/servers"
)

// bound is how long a test waits for something that takes milliseconds.
const bound = 20 * time.Second

// onServer are the tests that share a server; each has a prefix of its own.
var onServer = map[string]func(t *testing.T, s *servers.Server){
	"LostReplyOfTry":                testLostReplyOfTry,
	"LateTry":                       testLateTry,
	"LateTryOfFixedTerm":            testLateTryOfFixedTerm,
	"LostReplyOfRelease":            testLostReplyOfRelease,
	"LostReplyOfRevoke":             testLostReplyOfRevoke,
	"NoWaitLeavesNothing":           testNoWaitLeavesNothing,
	"RefusedFixedTermWritesNothing": testRefusedFixedTermWritesNothing,
	"Queue":                         testQueue,
	"LeaseDiesUnderWaiter":          testLeaseDiesUnderWaiter,
	"DeletedWaiter":                 testDeletedWaiter,
	"MoveToLongerLease":             testMoveToLongerLease,
	"LateMove":                      testLateMove,
	"MoveOfLostLock":                testMoveOfLostLock,
	"OneStreamForAllWaiters":        testOneStreamForAllWaiters,
	"KeyIsUsedAgain":                testKeyIsUsedAgain,
	"LateWritesMeetNobody":          testLateWritesMeetNobody,
	"CopiedProcess":                 testCopiedProcess,
	"CopiedProcessFails":            testCopiedProcessFails,
	"SweepSparesNextClaim":          testSweepSparesNextClaim,
	"LateSweep":                     testLateSweep,
	"KeyMadeAnew":                   testKeyMadeAnew,
	"WatchIsUsedAgain":              testWatchIsUsedAgain,
	"Requests":                      testRequests,
	"ManyLocks":                     testManyLocks,
	"LeaseDiesUnderHolders":         testLeaseDiesUnderHolders,
	"TamperedKeys":                  testTamperedKeys,
	"LostReplyOfGrant":              testLostReplyOfGrant,
	"GrantedTTL":                    testGrantedTTL,
	"CloseRevokes":                  testCloseRevokes,
	"Cmp":                           testCmp,
	"Compaction":                    testCompaction,
	"WakeIsNotPolled":               testWakeIsNotPolled,
	"Inspect":                       testInspect,
	"Break":                         testBreak,
}

func TestOnServer(t *testing.T) {
	s := servers.ForTest(t, servers.Etcd)
	for name, test := range onServer {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

// fault is what becomes of a request.
type fault int

const (
	pass      fault = iota
	loseReply       // the server has done it, the client is told that it is unavailable
	late            // the client is told so at once, the server gets it when wire.deliver is called
)

// wire sits below the client library's own retries, so it sees every request that
// goes to the server, and decides what becomes of it.
type wire struct {
	mu      sync.Mutex
	judge   func(method string) fault
	counts  map[string]int // by method, like "Txn"; streams count when they are opened
	delayed []func()
}

func newWire() *wire { return &wire{counts: make(map[string]int)} }

// faults sets what happens from now on; nil lets everything pass.
func (w *wire) faults(judge func(method string) fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge = judge
}

// next gives the next request of a method a fate.
func (w *wire) next(method string, f fault) {
	done := false
	w.faults(func(m string) fault {
		if m != method || done {
			return pass
		}
		done = true
		return f
	})
}

func (w *wire) see(fullMethod string) fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	method := path.Base(fullMethod)
	w.counts[method]++
	if w.judge == nil {
		return pass
	}
	return w.judge(method)
}

func (w *wire) count(method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[method]
}

// deliver sends what was delayed, in order, and returns when it is done.
func (w *wire) deliver() {
	w.mu.Lock()
	delayed := w.delayed
	w.delayed = nil
	w.mu.Unlock()
	for _, send := range delayed {
		send()
	}
}

var errUnavailable = status.Error(codes.Unavailable, "the test has cut the connection")

func (w *wire) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	switch w.see(method) {
	case loseReply:
		if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
			return err
		}
		return errUnavailable
	case late:
		w.mu.Lock()
		defer w.mu.Unlock()
		detached := context.WithoutCancel(ctx)
		// What the server says to it then, nobody hears.
		w.delayed = append(w.delayed, func() { _ = invoke(detached, method, req, reply, cc, opts...) })
		return errUnavailable
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

func (w *wire) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	w.see(method)
	s, err := open(ctx, desc, cc, method, opts...)
	return wired{s, w}, err
}

// wired counts the watches that are begun on a stream.
type wired struct {
	grpc.ClientStream
	wire *wire
}

func (s wired) SendMsg(m any) error {
	if r, ok := m.(*pb.WatchRequest); ok && r.GetCreateRequest() != nil {
		s.wire.see("WatchCreate")
	}
	return s.ClientStream.SendMsg(m)
}

// client returns a client to addr whose requests pass the wire.
func (w *wire) client(t testing.TB, addr string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{addr},
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(w.unary), grpc.WithChainStreamInterceptor(w.stream),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// newClient returns a client of the test's own, past the driver.
func newClient(t testing.TB, addr string) *clientv3.Client {
	t.Helper()
	return newWire().client(t, addr)
}

// store is a prefix on a server, a driver on it whose requests pass a wire, and a
// client past it.
type store struct {
	t testing.TB
	*driver
	wire  *wire
	admin *clientv3.Client
}

func newStore(t testing.TB, s *servers.Server) *store {
	t.Helper()
	return storeAt(t, s, rand.Text()+"/")
}

// storeAt is another process on the same prefix.
func storeAt(t testing.TB, s *servers.Server, prefix string) *store {
	t.Helper()
	w := newWire()
	d, err := newDriver(w.client(t, s.Addr()), prefix, false)
	if err != nil {
		t.Fatal(err)
	}
	st := &store{t: t, driver: d, wire: w, admin: newClient(t, s.Addr())}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

func newOwner() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// claim makes a claim with a TTL of 30 s, changed by with if that is not nil.
func (st *store) claim(name string, with func(*distlock.Request)) *claim {
	r := distlock.Request{Name: name, Owner: newOwner(), TTL: 30 * time.Second, Holder: "tester"}
	if with != nil {
		with(&r)
	}
	return st.Claim(r).(*claim)
}

func noWait(r *distlock.Request)    { r.NoWait = true }
func noRenewal(r *distlock.Request) { r.NoRenewal = true }

// won makes a claim that holds the name.
func (st *store) won(name string, with func(*distlock.Request)) *claim {
	st.t.Helper()
	c := st.claim(name, with)
	st.grant(c)
	return c
}

// grant tries once and must win.
func (st *store) grant(c *claim) distlock.Grant {
	st.t.Helper()
	g, err := c.Try(st.t.Context())
	if err != nil {
		st.t.Fatalf("Try: %v", err)
	}
	return g
}

// held tries once and must be told that the name is held.
func (st *store) held(c *claim) {
	st.t.Helper()
	if _, err := c.Try(st.t.Context()); !errors.Is(err, distlock.ErrHeld) {
		st.t.Fatalf("Try: %v, want ErrHeld", err)
	}
}

func (st *store) release(c *claim, want error) {
	st.t.Helper()
	if err := c.Release(st.t.Context()); !errors.Is(err, want) {
		st.t.Fatalf("Release: %v, want %v", err, want)
	}
}

// renew renews claims in one batch and returns their errors.
func (st *store) renew(claims ...*claim) []error {
	batch := make([]distlock.Renewal, len(claims))
	for i, c := range claims {
		batch[i] = distlock.Renewal{Claim: c, TTL: c.request.TTL}
	}
	st.RenewBatch(st.t.Context(), batch)
	errs := make([]error, len(claims))
	for i := range batch {
		errs[i] = batch[i].Err
	}
	return errs
}

// keys returns what is under the prefix, as the server has it.
func (st *store) keys() []*mvccpb.KeyValue {
	st.t.Helper()
	resp, err := st.admin.Get(st.t.Context(), st.prefix, clientv3.WithPrefix())
	if err != nil {
		st.t.Fatal(err)
	}
	return resp.Kvs
}

func (st *store) wantKeys(n int) {
	st.t.Helper()
	if kvs := st.keys(); len(kvs) != n {
		st.t.Fatalf("%d keys, want %d: %v", len(kvs), n, kvs)
	}
}

// exists reports whether the server knows the lease.
func (st *store) exists(l *lease) bool {
	st.t.Helper()
	resp, err := st.admin.TimeToLive(st.t.Context(), l.id)
	if err != nil {
		st.t.Fatal(err)
	}
	return resp.GrantedTTL != 0
}

func (st *store) revokeAsAdmin(l *lease) {
	st.t.Helper()
	if _, err := st.admin.Revoke(st.t.Context(), l.id); err != nil {
		st.t.Fatal(err)
	}
}

// waiting calls Wait in the background and returns the channel that tells its outcome.
func (st *store) waiting(c *claim) <-chan error {
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(st.t.Context(), bound)
	go func() {
		defer cancel()
		done <- c.Wait(ctx)
	}()
	return done
}

// woken waits until a Wait has returned, because there was something to see.
func (st *store) woken(done <-chan error) {
	st.t.Helper()
	if err := <-done; err != nil {
		st.t.Fatalf("Wait: %v, want to be woken", err)
	}
}

func isKey(key string) func(*mvccpb.KeyValue) bool {
	return func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == key }
}

// eventually waits until ok returns true.
func (st *store) eventually(what string, ok func() bool) {
	st.t.Helper()
	for end := time.Now().Add(bound); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			st.t.Fatalf("not so after %v: %s", bound, what)
		}
	}
}
