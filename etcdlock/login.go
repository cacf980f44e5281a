package etcdlock

import (
	"context"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// logins replaces the logins of a client of our own. The library logs in anew for each
// stream, and so for each keep-alive (etcd issue 15764). A login is a check of the
// password, 50 ms of a processor by default, and a write to all members. A member that
// lags behind refuses the new login (issue 18437), and would take the last one.
type logins struct {
	clientv3.Auth
	last atomic.Pointer[clientv3.AuthenticateResponse]
}

type lastLoginKey struct{}

// withLastLogin has a stream use the last login, if there is one. The member that it
// goes to may have forgotten that one: then the stream needs a new login.
func withLastLogin(ctx context.Context) context.Context {
	return context.WithValue(ctx, lastLoginKey{}, true)
}

// Authenticate implements clientv3.Auth.
func (l *logins) Authenticate(ctx context.Context, name, password string) (*clientv3.AuthenticateResponse, error) {
	if last := l.last.Load(); last != nil && ctx.Value(lastLoginKey{}) != nil {
		return last, nil
	}
	resp, err := l.Auth.Authenticate(ctx, name, password)
	if err == nil {
		l.last.Store(resp)
	}
	return resp, err
}

// unknownLogin reports whether the member knows nothing of the login, or not the latest
// of it. The library logs in by a request to any member. The stream may go to one that
// has not heard of it yet.
func unknownLogin(err error) bool {
	return err != nil && (strings.HasSuffix(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrGRPCInvalidAuthToken)) ||
		strings.HasSuffix(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthOldRevision)))
}
