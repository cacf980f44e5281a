// Package endpoint has what the drivers know of a Redis server, whatever their locks are:
//
//	sender.go   a request: one way to send it and to send it again, and whether it was sent
//	batcher.go  on which connection: pipelines, which bound them, or one of the caller's own
//	fate.go     what an error says of it
//	dial.go     what a client needs, and TLS; a setting of a server that is bad
package endpoint

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
)

// MinRequestTimeout is the least that a request has where a URL does not say: a slow round trip.
// Contexts bound the calls of shorter leases.
const MinRequestTimeout = 250 * time.Millisecond

// Options returns what every client needs that u describes. Where u does not say, a request has a part of
// the TTL, most at the most. What is wrong with u is an error of its own.
func Options(u *openurl.URL, ttl time.Duration, part int, most time.Duration) *redis.UniversalOptions {
	ttl = cmp.Or(ttl, distlock.DefaultTTL)
	request := u.Duration("request_timeout", max(min(ttl/time.Duration(part), most), MinRequestTimeout),
		time.Millisecond, max(ttl/3, MinRequestTimeout))
	dial, secure := u.Duration("dial_timeout", 5*time.Second, time.Millisecond, time.Minute), u.TLS()
	o := &redis.UniversalOptions{
		DialTimeout:  dial,
		ReadTimeout:  request,
		WriteTimeout: request,
		TLSConfig:    secure,

		// Answers are short, and go-redis has 32 KiB for each: some connections would weigh more than all held locks.
		ReadBufferSize:  2 << 10,
		WriteBufferSize: 8 << 10,

		// Pipelines share the pool. There would be ten connections more, and the first pipeline of renewals would
		// have to wait for one of them.
		PipelinePoolSize: -1,

		ContextTimeoutEnabled: true,
		// Requests are sent again anyway; a dead server should be an error soon.
		DialerRetries: 1,
		// What a connection would tell and ask at its start needs rights that a lock does not.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if secure != nil {
		o.Dialer = dialTLS(dial, secure)
		// A server may close what has been idle for some minutes, and with TLS go-redis does not see that.
		o.ConnMaxIdleTime = 4 * time.Minute
	}
	o.Username, o.Password, _ = u.User()
	return o
}

// CheckLogin returns what is wrong with the user and the password of a URL, as Database does. A user without a password is
// mostly a password without its colon; go-redis would not log in at all, and say nothing.
func CheckLogin(user, password string) (reason string) {
	if user != "" && password == "" {
		return "has a user and no password; a password alone is written redis://:password@host"
	}
	return ""
}

// Database returns the number that the path of a URL has, or what is wrong with it: the rest of a
// sentence that begins with the URL.
func Database(path string) (db int, reason string) {
	text := strings.TrimPrefix(path, "/")
	if text == "" {
		return 0, ""
	}
	db, err := strconv.Atoi(text)
	if err != nil || db < 0 {
		return 0, fmt.Sprintf("has the path %q, allowed is the number of a database", path)
	}
	return db, ""
}

// maxHandshake bounds a TLS handshake. A server that does not speak TLS takes the beginning
// of one for that of a command, and says nothing.
const maxHandshake = 3 * time.Second

// dialTLS returns what connects the client instead of go-redis. go-redis reports a handshake
// without an answer as the end of a context, and repeats it.
func dialTLS(timeout time.Duration, config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		// The keep-alive of go-redis, which finds dead connections before the load balancers between forget them.
		alive := net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}
		dialer := net.Dialer{Timeout: timeout, KeepAliveConfig: alive}
		raw, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		// A copy, because each server of a cluster has a name of its own.
		own := config.Clone()
		if own.ServerName == "" {
			own.ServerName = strings.Trim(addr[:strings.LastIndex(addr, ":")], "[]")
		}
		conn := tls.Client(raw, own)
		limit := min(timeout*3/4, maxHandshake) // before the end of the context, which says nothing
		bounded, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err = conn.HandshakeContext(bounded)
		if err == nil {
			return conn, nil
		}
		_ = raw.Close()
		if bounded.Err() != nil && !errors.Is(ctx.Err(), context.Canceled) {
			err = fmt.Errorf("no answer from %s to the TLS handshake within %v: it may be a port without TLS", addr, limit)
		}
		return nil, err
	}
}

// EvictionPolicy is the setting that LogEviction wants.
const EvictionPolicy = "maxmemory-policy"

// LogEviction tells of a server that may evict locks, as far as it shows that.
func LogEviction(policy string, err error, logger *slog.Logger) {
	switch {
	// A server may refuse CONFIG GET. That says nothing about its setting, so it is no error.
	case policy == "":
		logger.Info("this Redis does not show its maxmemory-policy: see to it that it is noeviction, or locks may be evicted",
			"err", err)
	case policy != "noeviction":
		logger.Warn("this Redis may evict locks when its memory is full: set maxmemory-policy to noeviction",
			EvictionPolicy, policy)
	}
}
