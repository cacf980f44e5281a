package etcdlock

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
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

// notLearner makes the refusal of a learner that of a member which is not available. The
// library and the driver go on with another one then.
func notLearner(err error) error {
	if !fromLearner(err) || status.Code(err) == codes.Unavailable {
		return err
	}
	return status.Error(codes.Unavailable, "the member does not vote: "+status.Convert(err).Message())
}

// stream intercepts watches and keep-alives. It notes what member refuses a login.
func (l *logins) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	used := l.last.Load()
	s, err := open(ctx, desc, cc, method, opts...)
	return memberStream{s, l, used}, notLearner(err)
}

type memberStream struct {
	grpc.ClientStream
	logins *logins
	used   *clientv3.AuthenticateResponse
}

// RecvMsg implements grpc.ClientStream.
func (s memberStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if unknownLogin(err) {
		s.logins.refused.Store(s.used)
	}
	return notLearner(err)
}
