package etcdlock

import (
	"context"
	"strconv"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// refusing is a stream. Its server refuses a watch and then ends the stream.
type refusing struct {
	grpc.ClientStream
	said bool
}

func (r *refusing) RecvMsg(m any) error {
	if r.said {
		return status.Error(codes.Unauthenticated, "the login has run out")
	}
	r.said = true
	m.(*pb.WatchResponse).Created, m.(*pb.WatchResponse).Canceled = true, true
	m.(*pb.WatchResponse).WatchId, m.(*pb.WatchResponse).CancelReason = clientv3.InvalidWatchID, "the login has run out"
	return nil
}

// In the client library, the end of such a stream mostly hangs for ever, and then Close
// hangs. That of a Locker does not, and its connection is closed.
func testCloseHungStream(t *testing.T, s *servers.Server) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st := dialed(ctx, t, s.LockURL(), grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := open(ctx, desc, cc, method, o...)
		if err == nil && method == pb.Watch_Watch_FullMethodName {
			s = &refusing{ClientStream: s}
		}
		return s, err
	}))
	client := st.client
	for i := range 20 { // most of them hang
		life, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "stream", strconv.Itoa(i)), 100*time.Millisecond)
		<-client.Watch(life, "x")
		cancel()
	}
	began := time.Now()
	testkit.Should(t, st.Close())
	if took := time.Since(began); took < streamsLimit {
		t.Errorf("Close took %v: no stream hung, so this shows nothing", took)
	}
	if s := client.ActiveConnection().GetState(); s != connectivity.Shutdown {
		t.Errorf("the connection is %v after Close", s)
	}
}
