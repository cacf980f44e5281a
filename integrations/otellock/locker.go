package otellock

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/distlock-go/distlock"
)

// Locker returns l with a span around each call: distlock.lock for Lock and TryLock,
// distlock.extend and distlock.unlock. The last has a link to the first, for it may be
// of another trace. Spans of the backend's client library are below them. It also measures
// how long the calls take. Wrappers such as Prefix go around it, so that it
// shows the names that the Observer sees. Close closes l.
func (t *Telemetry) Locker(l distlock.Locker) distlock.Locker { return &locker{l, t} }

type locker struct {
	distlock.Locker
	telemetry *Telemetry
}

// Unwrap returns the Locker inside, for Inspect and the like.
func (l *locker) Unwrap() distlock.Locker { return l.Locker }

// Lock implements distlock.Locker.
func (l *locker) Lock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	t := l.telemetry
	attributes := t.of(name)
	t.waiting.Add(ctx, 1, attributes)
	defer t.waiting.Add(ctx, -1, attributes)
	return t.traced(ctx, name, func(ctx context.Context) (distlock.Lock, error) { return l.Locker.Lock(ctx, name, opts...) })
}

// TryLock implements distlock.Locker.
func (l *locker) TryLock(ctx context.Context, name string, opts ...distlock.Option) (distlock.Lock, error) {
	return l.telemetry.traced(ctx, name, func(ctx context.Context) (distlock.Lock, error) { return l.Locker.TryLock(ctx, name, opts...) })
}

func (t *Telemetry) traced(ctx context.Context, name string, take func(context.Context) (distlock.Lock, error)) (distlock.Lock, error) {
	ctx, span := t.tracer.Start(ctx, "distlock.lock")
	defer span.End()
	start := time.Now()
	l, err := take(ctx)
	span.SetAttributes(t.called(ctx, name, start, err)...)
	if err != nil {
		// That a name is held is an answer.
		if !errors.Is(err, distlock.ErrHeld) || ctx.Err() != nil {
			span.SetStatus(codes.Error, errorText(err))
		}
		return nil, err
	}
	span.SetAttributes(tokenKey.Int64(l.Token()))
	return &lock{l, t, span.SpanContext()}, nil
}

// errorText is the reason alone: the text around it has the lock's name.
func errorText(err error) string {
	if e, ok := errors.AsType[*distlock.Error](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// extending is the key of a value in the context of an Extend. What is left then says
// nothing beside the TTL that Extend asks for: of a lease of 3 s, all of it is a thousandth
// of an hour.
type extending struct{}

type lock struct {
	distlock.Lock
	telemetry *Telemetry
	acquired  trace.SpanContext
}

// Unwrap returns the lock inside, for distlock.As.
func (l *lock) Unwrap() distlock.Lock { return l.Lock }

// Extend implements distlock.Lock.
func (l *lock) Extend(ctx context.Context, ttl time.Duration) error {
	ctx = context.WithValue(ctx, extending{}, true)
	return l.traced(ctx, "distlock.extend", func(ctx context.Context) error { return l.Lock.Extend(ctx, ttl) })
}

// Unlock implements distlock.Lock.
func (l *lock) Unlock(ctx context.Context) error {
	return l.traced(ctx, "distlock.unlock", l.Lock.Unlock)
}

func (l *lock) traced(ctx context.Context, op string, f func(context.Context) error) error {
	t := l.telemetry
	ctx, span := t.tracer.Start(ctx, op, trace.WithLinks(trace.Link{SpanContext: l.acquired}),
		trace.WithAttributes(t.attributes(l.Name(), tokenKey.Int64(l.Token()))...))
	defer span.End()
	err := f(ctx)
	if err != nil {
		span.SetAttributes(errorType(err)...)
		span.SetStatus(codes.Error, errorText(err))
	}
	return err
}
