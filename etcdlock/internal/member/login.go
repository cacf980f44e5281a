package member

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	loginLimit = 5 * time.Second        // of one login
	minLeft    = 200 * time.Millisecond // before the next one
)

// logins replaces the logins of a client of our own. The library logs in anew for each
// stream, and so for each keep-alive (etcd issue 15764). A login is a check of the
// password, 50 ms of a processor by default, and a write to all members. A member that
// lags behind refuses the new login (issue 18437), and would take the last one.
//
// The library also gives a login up with the request that needs it. Over a slow network,
// each renewal was refused, logged in, and had no time left for more. So logins have
// their own time here, and the last one is used by all requests that are sent after it.
// A JWT says when it ends. The next one is there before that, if there are requests: else all
// that is under way is refused at once, and each logs in. 64 goroutines, 80 ms from a server with
// logins of 2 s, then waited up to 2.1 s for a free name, and .3 s with this.
type logins struct {
	clientv3.Auth
	name, password string
	life           context.Context // of the client

	last    atomic.Pointer[clientv3.AuthenticateResponse]
	refused atomic.Pointer[clientv3.AuthenticateResponse] // by the member of a stream

	mu       sync.Mutex
	sent     int           // logins
	latest   int           // the number of the last one
	next     chan struct{} // closed with the next one; nil if nobody waits
	due, end time.Time     // when the last one is replaced, and its end; zero if it does not say
}

type lastLoginKey struct{}

// LastLogin has a stream use the last login, if there is one. A member may have forgotten
// it, and refuses the stream: then the next one has a new login.
func LastLogin(ctx context.Context) context.Context {
	return context.WithValue(ctx, lastLoginKey{}, true)
}

// Authenticate implements clientv3.Auth. Each call sends a login, and ends with any that
// comes: one member may hang. A login that comes after the call is later than what the
// call was refused with.
func (l *logins) Authenticate(ctx context.Context, name, password string) (*clientv3.AuthenticateResponse, error) {
	if last := l.last.Load(); last != nil && last != l.refused.Load() && ctx.Value(lastLoginKey{}) != nil {
		return last, nil
	}
	next, failed := l.login(context.WithoutCancel(ctx), name, password)
	select {
	case <-next:
		return l.last.Load(), nil
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// login sends a login.
func (l *logins) login(ctx context.Context, name, password string) (next <-chan struct{}, failed <-chan error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	number := l.sent
	if l.next == nil {
		l.next = make(chan struct{})
	}
	failure := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, loginLimit)
		defer cancel()
		defer context.AfterFunc(l.life, cancel)()
		resp, err := l.Auth.Authenticate(ctx, name, password)
		if err != nil {
			failure <- err
			return
		}
		l.note(number, resp)
	}()
	return l.next, failure
}

// note keeps a login, unless a later one has come before.
func (l *logins) note(number int, resp *clientv3.AuthenticateResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number < l.latest {
		return
	}
	l.latest = number
	l.last.Store(resp)
	l.end = endOf(resp.Token)
	l.postpone()
	if l.next != nil {
		close(l.next)
		l.next = nil
	}
}

// postpone makes the next login due when half of the time left is over. l.mu is held.
func (l *logins) postpone() {
	l.due = time.Time{}
	if left := time.Until(l.end); left > 0 {
		l.due = time.Now().Add(max(left/2, minLeft))
	}
}

// endOf returns when a login ends, by the clock of the server; zero if it does not say.
// Only a JWT does. If the clocks differ by more than it lasts, the next login comes too
// late, and a request is refused first.
func endOf(token string) (end time.Time) {
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	var claims struct {
		End float64 `json:"exp"`
	}
	if err == nil && json.Unmarshal(text, &claims) == nil && claims.End > 0 {
		end = time.Unix(int64(claims.End), 0)
	}
	return end
}

// GetRequestMetadata implements credentials.PerRPCCredentials. What it returns comes
// after the library's own, and counts. No request waits for the next login.
func (l *logins) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	last := l.last.Load()
	if last == nil {
		return nil, nil
	}
	l.mu.Lock()
	due := !l.due.IsZero() && time.Now().After(l.due)
	if due {
		l.postpone()
	}
	l.mu.Unlock()
	if due {
		l.login(context.Background(), l.name, l.password)
	}
	return map[string]string{rpctypes.TokenFieldNameGRPC: last.Token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (l *logins) RequireTransportSecurity() bool { return false }
