package endpoint

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/distlock-go/distlock/driver"
)

// Sender sends the requests of one client: to a server together with those of other callers, to a
// cluster each alone, as a server that hangs would delay the requests to the others. It is safe for
// concurrent use. It has no end of its own: what it has sent ends with the client.
type Sender struct {
	batcher
	Resends int // of a request that had no answer; set before the first request

	cluster *redis.ClusterClient // Client, if it is one of a cluster; else nil
}

// NewSender returns a Sender.
func NewSender(client redis.UniversalClient, resends int) *Sender {
	cluster, _ := client.(*redis.ClusterClient)
	return &Sender{batcher{Client: client, Delay: MaxDelay}, resends, cluster}
}

// Run runs a script. late reports whether a copy of the request has had no answer: it may have been
// applied, or may still arrive. The error is a *driver.Fault, and speaks for all copies.
//
//	EVALSHA digest ──▶ answer
//	               ──▶ NOSCRIPT, so nothing has run: EVAL source ──▶ answer
//	               ──▶ no answer: the same again, up to Resends times
func (s *Sender) Run(ctx context.Context, script Script, keys []string, args ...any) (answer any, late bool, err error) {
	pause := driver.Retry{First: 20 * time.Millisecond, Most: 500 * time.Millisecond}
	for left, bySource := s.Resends, false; ; {
		r := script.Request(ctx, bySource, keys, args)
		err = s.Send(ctx, r)
		if err == nil {
			return r.Val(), late, nil
		}
		if redis.HasErrorPrefix(err, "NOSCRIPT") && !bySource {
			// The cache of scripts is lost with a restart, a fail-over or SCRIPT FLUSH.
			bySource = true
			continue
		}
		fate := FateOf(err)
		silent := fate == driver.Unknown
		if silent && r.text.withdraw() {
			fate = driver.NotSent
		}
		late = late || fate == driver.Unknown
		s.Doubt(err)
		if silent && left > 0 && !errors.Is(err, redis.ErrClosed) && pause.Pause(ctx) == nil {
			left--
			continue
		}
		f := Fault(ctx, err).(*driver.Fault)
		if f.Fate = fate; late {
			f.Fate = driver.Unknown
		}
		return nil, late, f
	}
}

// Send sends one copy of a request and waits for its outcome, or for the end of ctx. After that r
// must not be read.
func (s *Sender) Send(ctx context.Context, r *Request) error {
	if s.cluster == nil {
		return s.send(ctx, r)
	}
	_, err := driver.Detach(ctx, func() (any, error) { return nil, s.Client.Process(ctx, r) })
	return err
}

// Doubt has the topology of a cluster asked for anew if err is not the answer of a server:
// another may have become the master of the one that does not answer, or has given the slot away.
func (s *Sender) Doubt(err error) {
	if s.cluster != nil && err != nil && (!Answered(err) || redis.HasErrorPrefix(err, "MOVED ")) {
		s.cluster.ReloadState(context.Background())
	}
}
