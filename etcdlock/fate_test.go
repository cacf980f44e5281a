package etcdlock

import (
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/servers"
)

// What the library makes of an answer, and what a server sends, have the same fate.
func TestFate(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want driver.Fate
	}{
		{rpctypes.ErrNoSpace, driver.NotNow},
		{rpctypes.ErrNoLeader, driver.NotNow},
		{rpctypes.ErrTooManyRequests, driver.NotNow},
		{rpctypes.ErrTimeout, driver.Unknown},
		{rpctypes.ErrTimeoutDueToLeaderFail, driver.Unknown},
		{rpctypes.ErrLeaderChanged, driver.Unknown},
		{rpctypes.ErrPermissionDenied, driver.Answered},
		{rpctypes.ErrAuthFailed, driver.Answered},
		{rpctypes.ErrLeaseNotFound, driver.Answered},
		{rpctypes.ErrTooManyOps, driver.Answered},
		{rpctypes.ErrGRPCNotSupportedForLearner, driver.Again},
		{rpctypes.ErrGRPCInvalidAuthToken, driver.Again},
		{errDeposed, driver.Again},
		{status.Error(codes.Unknown, "raft proposal dropped"), driver.Again},
		{errUnanswered, driver.Unknown},
		{errGarbled, driver.Unknown},
		{status.Error(codes.Unavailable, "context deadline exceeded: latest balancer error: dial tcp 127.0.0.1:1: connect: connection refused"), driver.NotSent},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), driver.Unknown},
		{status.Error(codes.ResourceExhausted, "grpc: received message larger than max"), driver.Unknown},
		{status.Error(codes.Unimplemented, "unknown method"), driver.Answered},
	} {
		if got := fate(fmt.Errorf("wrapped: %w", tt.err)); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
}

// What a Try is told decides what is owed for it: after a refusal there is nothing of it, unless
// an earlier request had no answer.
func testFateOfTry(t *testing.T, s *servers.Server) {
	st := newStore(t, s)
	want := func(c *claim, f fault, fate driver.Fate) {
		t.Helper()
		st.wire.next("Txn", f)
		if _, err := c.Try(t.Context()); err == nil || driver.FateOf(err) != fate {
			t.Errorf("Try: %v (%v), want one that is %v", err, driver.FateOf(err), fate)
		}
	}
	for _, with := range []func(*driver.Request){nil, noWait, noRenewal} {
		c := st.claim("x", with)
		want(c, full, driver.NotNow)
		if c.lease != nil || c.key != "" {
			t.Error("a Try that was refused has kept its key and its lease")
		}
		want(c, denied, driver.Answered)
		want(c, late, driver.Unknown)
		want(c, full, driver.NotNow) // and the engine knows that something is owed
		if c.lease == nil {
			t.Error("a Try that was refused has given up the lease of an earlier put")
		}
		st.wantKeys(0)
		st.grant(c)
		st.release(c, nil)
		st.wire.deliver()
		st.wantKeys(0)
	}
	// The put that has filled the store up was applied, and the read of the queue was refused.
	c, reads := st.claim("x", noRenewal), 0
	st.wire.faults(func(method string) fault {
		switch method {
		case "Txn":
			return overQuota
		case "Range":
			if reads++; reads == 2 {
				return denied
			}
		}
		return pass
	})
	if _, err := c.Try(t.Context()); driver.FateOf(err) != driver.Unknown || err == nil {
		t.Errorf("Try: %v (%v), want one that is %v", err, driver.FateOf(err), driver.Unknown)
	}
	st.wire.faults(nil)
	st.grant(c)
	st.release(c, nil)
	if len(st.store.keys.used) != 0 {
		t.Errorf("keys in use: %v", st.store.keys.used)
	}
}
