package member

import (
	"context"
	"errors"
	"io"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// Elsewhere reports whether a member has refused a request that another one, or the same one
// after the next login, may take.
func Elsewhere(err error) bool { return fromLearner(err) || unknownLogin(err) }

// A learner is a member that does not vote yet. It refuses whatever a lock needs. The
// client library gives requests to all endpoints in a circle, learners among them. It
// sends a single request that was refused to the next member, but no stream: neither a
// keep-alive nor a watch.

func fromLearner(err error) bool {
	return err != nil && strings.HasSuffix(status.Convert(err).Message(), rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner))
}

// unknownLogin reports whether the member knows nothing of the login, or not the latest
// of it. The library logs in by a request to any member. The stream may go to one that
// has not heard of it yet.
func unknownLogin(err error) bool {
	return err != nil && (strings.HasSuffix(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrGRPCInvalidAuthToken)) ||
		strings.HasSuffix(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthOldRevision)))
}

// Unconnected reports whether gRPC says of a request that it had no connection, or has waited for one in
// vain. A client of Open tells such a wait from a request that was sent; one of the user's says for both
// that the time is over, which says nothing. What ends a connection in use is worded otherwise.
func Unconnected(text string) bool {
	return strings.Contains(text, "latest balancer error") || strings.Contains(text, "while waiting for connections to become ready") ||
		strings.Contains(text, `desc = "transport: `) || strings.Contains(text, `desc = "error reading server preface`)
}

// Gone reports whether the connection has ended under a request, or the member has: it does not tell what it has done
// any more, but another one can.
func Gone(err error) bool {
	if known, isKnown := errors.AsType[rpctypes.EtcdError](err); isKnown {
		return known == rpctypes.ErrStopped
	}
	return status.Code(err) == codes.Unavailable && !Unconnected(err.Error())
}

// Intercept tells the client library that the outcome of a request is not known if its
// stream was reset, as by a proxy. Without it, the library sends writes again, and the
// second answer differs from the first.
func Intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	o, opens := ctx.Value(openingKey{}).(*opening)
	if opens {
		opts = append(opts, grpc.WaitForReady(false))
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	if opens {
		o.note(err)
	}
	if text := status.Convert(err).Message(); !opens && Unconnected(text) {
		return status.Error(codes.Unavailable, text) // the library would say no more than that the time is over
	}
	if c := status.Code(err); ctx.Err() == nil && (c == codes.Canceled || c == codes.DeadlineExceeded) && cc.GetState() != connectivity.Shutdown {
		return status.Error(codes.Unavailable, "the request was reset: "+status.Convert(err).Message())
	}
	return err
}

// stream intercepts watches and keep-alives. It notes what member refuses a login.
func (l *logins) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	used := l.last.Load()
	s, err := open(ctx, desc, cc, method, opts...)
	noteOpening(ctx, err)
	return memberStream{s, l, used}, err
}

type memberStream struct {
	grpc.ClientStream
	logins *logins
	used   *clientv3.AuthenticateResponse
}

// RecvMsg implements grpc.ClientStream.
func (s memberStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	noteOpening(s.Context(), err)
	if unknownLogin(err) {
		s.logins.refused.Store(s.used)
	}
	return err
}

// KeepAlive sends one request on a stream of its own. The client library has a function
// for that. But if a server refuses the request, that function sends it again and
// again, without a pause.
func KeepAlive(ctx context.Context, c pb.LeaseClient, id clientv3.LeaseID, opts ...grpc.CallOption) (seconds int64, err error) {
	ctx, cancel := context.WithCancel(LastLogin(ctx))
	defer cancel() // ends the stream
	stream, err := c.LeaseKeepAlive(ctx, opts...)
	if err != nil {
		return 0, err
	}
	// After its end, a stream gives the reason to Recv only.
	if err = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil && err != io.EOF {
		return 0, err
	}
	resp, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	return resp.TTL, nil
}
