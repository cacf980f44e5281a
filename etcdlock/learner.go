package etcdlock

import (
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A learner is a member that does not vote yet. It refuses whatever a lock needs. The
// client library gives requests to all endpoints in a circle, learners among them. It
// sends a single request that was refused to the next member, but no stream: neither a
// keep-alive nor a watch.

func fromLearner(err error) bool {
	return err != nil && strings.HasSuffix(status.Convert(err).Message(), rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner))
}

// The pauses after refusals. At first there may be a connection to no other member yet.
const (
	firstPause = time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// taken sends a request until a member does not refuse it unread, or ctx ends.
func taken(ctx context.Context, send func() error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := send()
		if !fromLearner(err) && !unknownLogin(err) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return notLearner(err)
		}
	}
}

// notLearner makes the refusal of a learner that of a member which is not available. The
// library and the driver go on with another one then.
func notLearner(err error) error {
	if !fromLearner(err) || status.Code(err) == codes.Unavailable {
		return err
	}
	return status.Error(codes.Unavailable, "the member does not vote: "+status.Convert(err).Message())
}

// interceptStream is for watches and keep-alives.
func interceptStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	return memberStream{s}, notLearner(err)
}

type memberStream struct{ grpc.ClientStream }

// RecvMsg implements grpc.ClientStream.
func (s memberStream) RecvMsg(m any) error { return notLearner(s.ClientStream.RecvMsg(m)) }
