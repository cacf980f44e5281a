// Package otellock measures and traces the locks of distlock by OpenTelemetry.
//
//	telemetry, err := otellock.New("redis", otellock.Options{})
//	locker, err := backends.Open(ctx, url, backends.Observer(telemetry.Observer()))
//	locker = telemetry.Locker(locker)
//
// It takes both: the Observer hears what happens to locks behind their holders' backs, and
// the Locker sees the calls. The README has the instruments, how to show them to
// Prometheus, a dashboard and alert rules.
package otellock

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/distlock-go/distlock"
)

const scope = "github.com/distlock-go/distlock/integrations/otellock"

// The attributes besides error.type of the semantic conventions.
const (
	backendKey = attribute.Key("distlock.backend")   // as passed to New
	nameKey    = attribute.Key("distlock.lock.name") // if Options.Name lets it through
	outcomeKey = attribute.Key("distlock.outcome")   // acquired, held, canceled, timeout, error
	endKey     = attribute.Key("distlock.end")       // unlocked, lost
	reasonKey  = attribute.Key("distlock.reason")    // distlock.Lost.Reason
	tokenKey   = attribute.Key("distlock.token")     // of spans only: each is another
)

// Options say where measurements and spans go. The zero value is fine.
type Options struct {
	MeterProvider  metric.MeterProvider // nil means the global one
	TracerProvider trace.TracerProvider // nil means the global one

	// Name returns what metrics and spans call a lock, or "" to leave its name out. It may
	// give many names one label, "orders/42" and "orders/43" the label "orders". Nil means
	// that no name is shown: each label costs a time series for every instrument, and a
	// name may hold what is nobody's business. It is called by many goroutines.
	Name func(name string) string
}

// Names returns an Options.Name that shows these names only.
func Names(names ...string) func(string) string {
	shown := make(map[string]bool)
	for _, name := range names {
		shown[name] = true
	}
	return func(name string) string {
		if shown[name] {
			return name
		}
		return ""
	}
}

// Telemetry has the instruments and the tracer of the locks of one backend. It is safe for
// concurrent use.
type Telemetry struct {
	backend string
	name    func(string) string
	tracer  trace.Tracer
	instruments
}

// New makes the instruments. Each measurement and each span says the backend, "redis" say.
func New(backend string, o Options) (*Telemetry, error) {
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.Name == nil {
		o.Name = Names()
	}
	t := &Telemetry{backend: backend, name: o.Name, tracer: o.TracerProvider.Tracer(scope)}
	return t, t.make(o.MeterProvider.Meter(scope))
}

// attributes returns those of a lock.
func (t *Telemetry) attributes(name string, more ...attribute.KeyValue) []attribute.KeyValue {
	kvs := append(more, backendKey.String(t.backend))
	if label := t.name(name); label != "" {
		kvs = append(kvs, nameKey.String(label))
	}
	return kvs
}

// of is attributes for a measurement.
func (t *Telemetry) of(name string, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(t.attributes(name, more...)...))
}

// Observer returns what the Locker is to be opened with.
func (t *Telemetry) Observer() *distlock.Observer {
	return &distlock.Observer{
		Acquired: func(e distlock.Acquired) { t.active.Add(e.Ctx, 1, t.of(e.Name)) },
		Released: func(e distlock.Released) {
			t.active.Add(e.Ctx, -1, t.of(e.Name))
			t.held.Record(e.Ctx, e.Held.Seconds(), t.of(e.Name, endKey.String("unlocked")))
			if e.Err != nil {
				t.releaseFailed.Add(e.Ctx, 1, t.of(e.Name, errorType(e.Err)...))
			}
		},
		Lost: func(e distlock.Lost) {
			t.active.Add(e.Ctx, -1, t.of(e.Name))
			t.held.Record(e.Ctx, e.Held.Seconds(), t.of(e.Name, endKey.String("lost")))
			t.lost.Add(e.Ctx, 1, t.of(e.Name, reasonKey.String(e.Reason)))
		},
		Renewed: func(e distlock.Renewed) {
			t.renewal.Record(e.Ctx, e.Took.Seconds(), t.of(e.Name, errorType(e.Err)...))
			if e.Err == nil && e.Ctx.Value(extending{}) == nil {
				// After an Extend there may be more left than the TTL that renewals ask for.
				t.margin.Record(e.Ctx, min(float64(e.Left)/float64(e.TTL), 1), t.of(e.Name))
			}
		},
		CleanedUp: func(e distlock.CleanedUp) {
			if e.Err != nil {
				t.cleanupFailed.Add(e.Ctx, 1, t.of(e.Name, errorType(e.Err)...))
			}
		},
	}
}

// called measures a call to Lock or TryLock that began at start, and returns its
// attributes for the span.
func (t *Telemetry) called(ctx context.Context, name string, start time.Time, err error) []attribute.KeyValue {
	var kvs []attribute.KeyValue
	switch {
	case err == nil:
		kvs = append(kvs, outcomeKey.String("acquired"))
	case errors.Is(err, context.Canceled): // first: a Lock that waited in vain is ErrHeld as well
		kvs = append(kvs, outcomeKey.String("canceled"))
	case errors.Is(err, context.DeadlineExceeded):
		kvs = append(kvs, outcomeKey.String("timeout"))
	case errors.Is(err, distlock.ErrHeld):
		kvs = append(kvs, outcomeKey.String("held"))
	default:
		kvs = append(errorType(err), outcomeKey.String("error"))
	}
	kvs = t.attributes(name, kvs...)
	t.acquire.Record(ctx, time.Since(start).Seconds(), metric.WithAttributeSet(attribute.NewSet(kvs...)))
	return kvs
}
