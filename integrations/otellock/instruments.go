package otellock

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/distlock-go/distlock"
)

// instruments are named by the rules of the semantic conventions, which have none for locks:
// seconds, units of counts in braces, no plurals, no "total".
type instruments struct {
	acquire, held, renewal, margin     metric.Float64Histogram
	waiting, active                    metric.Int64UpDownCounter
	lost, releaseFailed, cleanupFailed metric.Int64Counter
}

var (
	// requests has the bounds that the conventions give to calls of a database.
	requests = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10}
	// holds goes on to an hour, since a leader holds its lock for as long as it runs.
	holds = []float64{.001, .01, .1, 1, 10, 60, 600, 3600}
	// margins has bounds on both sides of the 0.3 of the alert. 2/3 is normal: a lock is
	// renewed at a third of its lease.
	margins = []float64{.05, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1}
)

func (i *instruments) make(m metric.Meter) error {
	var errs []error
	histogram := func(name, unit, about string, bounds []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(about),
			metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	upDown := func(name, unit, about string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(about))
		errs = append(errs, err)
		return c
	}
	counter := func(name, unit, about string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
		errs = append(errs, err)
		return c
	}
	i.acquire = histogram("distlock.acquire.duration", "s", "Duration of calls to Lock and TryLock, by outcome.", requests)
	i.waiting = upDown("distlock.acquire.waiting", "{call}", "Calls of Lock under way.")
	i.active = upDown("distlock.lock.active", "{lock}", "Locks held.")
	i.held = histogram("distlock.lock.duration", "s", "For how long locks were held, by their end.", holds)
	i.lost = counter("distlock.lock.lost", "{lock}", "Locks that ended other than by Unlock.")
	i.renewal = histogram("distlock.renewal.duration", "s", "Duration of renewals.", requests)
	i.margin = histogram("distlock.renewal.margin", "1", "Time left when a renewal was confirmed, as a part of the TTL.", margins)
	i.releaseFailed = counter("distlock.release.failed", "{lock}", "Releases that gave up; the name is held until its TTL is over.")
	i.cleanupFailed = counter("distlock.cleanup.failed", "{call}", "Failed calls with a clean-up that gave up.")
	return errors.Join(errs...)
}

// errorType returns the attribute error.type, or nothing if err is no failure. It has few
// values: the errors of distlock, or the type of what the client library has returned.
func errorType(err error) []attribute.KeyValue {
	for _, e := range []struct {
		err  error
		text string
	}{
		{distlock.ErrLost, "lost"}, {distlock.ErrClosed, "closed"},
		{distlock.ErrInvalid, "invalid"}, {distlock.ErrUnsupported, "unsupported"},
	} {
		if errors.Is(err, e.err) {
			return []attribute.KeyValue{attribute.String("error.type", e.text)}
		}
	}
	if err == nil || errors.Is(err, distlock.ErrUnlocked) { // a renewal that Unlock came before
		return nil
	}
	if t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && t.Timeout() {
		return []attribute.KeyValue{attribute.String("error.type", "timeout")}
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return []attribute.KeyValue{attribute.String("error.type", fmt.Sprintf("%T", err))}
}
