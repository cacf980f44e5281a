package otellock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/integrations/otellock"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
	"github.com/distlock-go/distlock/memlock"
)

// probe keeps what a Telemetry measures.
type probe struct {
	*otellock.Telemetry
	reader *metric.ManualReader
	spans  *tracetest.SpanRecorder
	tracer *trace.TracerProvider
}

func newProbe(t *testing.T, backend string, name func(string) string) *probe {
	t.Helper()
	p := &probe{reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	p.tracer = trace.NewTracerProvider(trace.WithSpanProcessor(p.spans))
	var err error
	p.Telemetry, err = otellock.New(backend, otellock.Options{
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(p.reader)),
		TracerProvider: p.tracer,
		Name:           name,
	})
	testkit.Must(t, err)
	return p
}

// metrics returns the instruments with their units, and of each series the value, the
// number of values of a histogram.
func (p *probe) metrics(t *testing.T) (units map[string]string, values map[string]int64, sums map[string]float64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	testkit.Must(t, p.reader.Collect(context.Background(), &all))
	units, values, sums = make(map[string]string), make(map[string]int64), make(map[string]float64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			units[m.Name] = m.Unit
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, point := range data.DataPoints {
					values[series(m.Name, point.Attributes)] = point.Value
				}
			case metricdata.Histogram[float64]:
				for _, point := range data.DataPoints {
					values[series(m.Name, point.Attributes)] = int64(point.Count)
					sums[series(m.Name, point.Attributes)] = point.Sum
				}
			default:
				t.Errorf("%s is a %T", m.Name, m.Data)
			}
		}
	}
	return units, values, sums
}

// series names a time series; every one must have the backend.
func series(name string, set attribute.Set) string {
	text := name
	for _, kv := range set.ToSlice() {
		text += " " + strings.TrimPrefix(string(kv.Key), "distlock.") + "=" + kv.Value.String()
	}
	return text
}

var errBroken = errors.New("broken")

// faults has a store fail requests of some kinds.
type faults struct{ ops atomic.Pointer[[]string] }

func (f *faults) fail(ops ...string) { f.ops.Store(&ops) }

func (f *faults) store() *memlock.Store {
	f.fail()
	return memlock.NewStore(&memlock.StoreOptions{Intercept: func(_ context.Context, c memlock.Call, apply func()) error {
		if slices.Contains(*f.ops.Load(), c.Op) {
			return errBroken
		}
		apply()
		return nil
	}})
}

func open(t *testing.T, p *probe, s *memlock.Store) distlock.Locker {
	t.Helper()
	o := &memlock.Options{}
	o.Observer = p.Observer()
	l, err := memlock.New(s, o)
	testkit.Must(t, err)
	return p.Locker(l)
}

func must(t *testing.T, l distlock.Locker, name string, opts ...distlock.Option) distlock.Lock {
	t.Helper()
	lock, err := l.Lock(context.Background(), name, opts...)
	testkit.Must(t, err)
	return lock
}

// Everything that can happen to a lock is in the nine instruments.
func TestInstruments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bg := context.Background()
		p := newProbe(t, "memory", otellock.Names("shown"))
		var f faults
		l := open(t, p, f.store())

		lock := must(t, l, "shown", distlock.TTL(3*time.Second)) // acquired, renewed twice, unlocked
		if _, err := l.TryLock(bg, "shown"); !errors.Is(err, distlock.ErrHeld) {
			t.Fatal(err)
		}
		timeout, cancel := context.WithTimeout(bg, 2500*time.Millisecond)
		defer cancel()
		canceled, leave := context.WithCancel(bg)
		go func() { _, _ = l.Lock(canceled, "shown") }()
		go func() { _, _ = l.Lock(timeout, "shown") }()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		_, values, _ := p.metrics(t)
		for name, want := range map[string]int64{
			"distlock.acquire.waiting backend=memory lock.name=shown": 2,
			"distlock.lock.active backend=memory lock.name=shown":     1,
		} {
			if values[name] != want {
				t.Errorf("%s is %d, want %d", name, values[name], want)
			}
		}
		leave()
		time.Sleep(time.Second)
		testkit.Must(t, lock.Unlock(bg))

		expired := must(t, l, "secret", distlock.TTL(time.Second), distlock.NoRenewal())
		<-expired.Done()
		gone := must(t, l, "secret", distlock.TTL(3*time.Second))
		testkit.Must(t, distlock.Break(bg, l, "secret", 0))
		<-gone.Done()
		time.Sleep(10 * time.Second)

		f.fail("renew")
		failing := must(t, l, "secret", distlock.TTL(3*time.Second))
		if err := failing.Extend(bg, time.Second); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		f.fail("release")
		_ = failing.Unlock(bg)
		f.fail("try", "release") // also the clean-up, which begins before Lock returns
		if _, err := l.Lock(bg, "other", distlock.TTL(time.Second)); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		if _, err := l.Lock(bg, ""); !errors.Is(err, distlock.ErrInvalid) {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		f.fail()
		testkit.Should(t, l.Close())
		synctest.Wait()

		units, values, sums := p.metrics(t)
		wantUnits := map[string]string{
			"distlock.acquire.duration": "s", "distlock.acquire.waiting": "{call}",
			"distlock.lock.active": "{lock}", "distlock.lock.duration": "s", "distlock.lock.lost": "{lock}",
			"distlock.renewal.duration": "s", "distlock.renewal.margin": "1",
			"distlock.release.failed": "{lock}", "distlock.cleanup.failed": "{call}",
		}
		if !maps.Equal(units, wantUnits) {
			t.Errorf("instruments %v, want %v", units, wantUnits)
		}
		wantValues := map[string]int64{
			"distlock.acquire.duration backend=memory lock.name=shown outcome=acquired":             1,
			"distlock.acquire.duration backend=memory lock.name=shown outcome=held":                 1,
			"distlock.acquire.duration backend=memory lock.name=shown outcome=canceled":             1,
			"distlock.acquire.duration backend=memory lock.name=shown outcome=timeout":              1,
			"distlock.acquire.duration backend=memory outcome=acquired":                             3,
			"distlock.acquire.duration backend=memory outcome=error error.type=*errors.errorString": 1,
			"distlock.acquire.duration backend=memory outcome=error error.type=invalid":             1,
			"distlock.acquire.waiting backend=memory lock.name=shown":                               0,
			"distlock.acquire.waiting backend=memory":                                               0,
			"distlock.lock.active backend=memory lock.name=shown":                                   0,
			"distlock.lock.active backend=memory":                                                   0,
			"distlock.lock.duration backend=memory end=unlocked lock.name=shown":                    1,
			"distlock.lock.duration backend=memory end=unlocked":                                    1,
			"distlock.lock.duration backend=memory end=lost":                                        2,
			"distlock.lock.lost backend=memory reason=overrun":                                      1,
			"distlock.lock.lost backend=memory reason=gone":                                         1,
			"distlock.renewal.duration backend=memory lock.name=shown":                              3,
			"distlock.renewal.duration backend=memory error.type=lost":                              1,
			"distlock.renewal.duration backend=memory error.type=*errors.errorString":               1,
			"distlock.renewal.margin backend=memory lock.name=shown":                                3,
			"distlock.release.failed backend=memory error.type=*errors.errorString":                 1,
			"distlock.cleanup.failed backend=memory error.type=*errors.errorString":                 1,
		}
		compare(t, values, wantValues)
		// A renewal comes at a third of what is left: two thirds are left.
		margin := sums["distlock.renewal.margin backend=memory lock.name=shown"] / 3
		if margin < .6 || margin > .7 {
			t.Errorf("the margin is %v", margin)
		}
		if held := sums["distlock.lock.duration backend=memory end=unlocked lock.name=shown"]; held != 3 {
			t.Errorf("held for %v s", held)
		}
	})
}

func compare(t *testing.T, got, want map[string]int64) {
	t.Helper()
	sorted := func(series string) string { // attributes in any order
		words := strings.Fields(series)
		slices.Sort(words[1:])
		return strings.Join(words, " ")
	}
	normal := func(m map[string]int64) map[string]int64 {
		out := make(map[string]int64)
		for name, n := range m {
			out[sorted(name)] = n
		}
		return out
	}
	got, want = normal(got), normal(want)
	for name, n := range want {
		if have, ok := got[name]; !ok || have != n {
			t.Errorf("%s is %d, want %d", name, have, n)
		}
	}
	for name, n := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is %d, nobody has asked for it", name, n)
		}
	}
}

// An Extend beyond the TTL is no close call, nor are the renewals after it.
func TestMarginAfterExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t, "memory", nil)
		l := open(t, p, memlock.NewStore(nil))
		lock := must(t, l, "x", distlock.TTL(3*time.Second))
		testkit.Must(t, lock.Extend(t.Context(), time.Hour))
		time.Sleep(10 * time.Second)
		_ = l.Close()
		_, values, sums := p.metrics(t)
		// Each is nearly 1 at most, so that not one is low.
		if n, sum := values["distlock.renewal.margin backend=memory"], sums["distlock.renewal.margin backend=memory"]; n < 2 || sum < float64(n)-.1 {
			t.Errorf("%d margins with the sum %v", n, sum)
		}
	})
}

// A span tells of each call, in the caller's trace; what only a backend's lock can do is
// still there; no name is shown that is not allowed.
func TestSpans(t *testing.T) {
	p := newProbe(t, "memory", otellock.Names("shown"))
	inner, err := memlock.New(memlock.NewStore(nil), nil)
	testkit.Must(t, err)
	l := p.Locker(inner)
	defer l.Close()
	ctx, root := p.tracer.Tracer("test").Start(t.Context(), "root")
	lock, err := l.Lock(ctx, "secret")
	testkit.Must(t, err)
	if _, ok := distlock.As[interface {
		distlock.Lock
		StoreToken() int64
	}](lock); !ok {
		t.Error("the backend's lock cannot be reached")
	}
	testkit.Must(t, lock.Extend(ctx, time.Minute))
	_, held := l.TryLock(ctx, "secret")
	ended, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, late := l.Lock(ended, "secret")
	if held == nil || late == nil {
		t.Fatal("a lock held twice")
	}
	testkit.Must(t, distlock.Break(ctx, l, "secret", 0))
	if err := lock.Unlock(ctx); !errors.Is(err, distlock.ErrLost) {
		t.Fatal(err)
	}
	root.End()

	var got []string
	spans := p.spans.Ended()
	for _, s := range spans {
		text := fmt.Sprint(s.Name(), " ", s.Status().Code)
		for _, kv := range s.Attributes() {
			if kv.Key == "distlock.outcome" || kv.Key == "error.type" {
				text += " " + kv.Value.AsString()
			}
			if kv.Key == "distlock.lock.name" || strings.Contains(kv.Value.String()+s.Status().Description, "secret") {
				t.Errorf("%s shows a name: %v %s", s.Name(), kv, s.Status().Description)
			}
		}
		if s.SpanContext().TraceID() != root.SpanContext().TraceID() {
			t.Errorf("%s is not in the caller's trace", s.Name())
		}
		if s.Name() == "distlock.unlock" && (len(s.Links()) != 1 || s.Links()[0].SpanContext.SpanID() != spans[0].SpanContext().SpanID()) {
			t.Errorf("the span of Unlock has the links %v", s.Links())
		}
		got = append(got, text)
	}
	want := []string{"distlock.lock " + codes.Unset.String() + " acquired", "distlock.extend Unset", "distlock.lock Unset held",
		"distlock.lock Error timeout", "distlock.unlock Error lost", "root Unset"}
	if !slices.Equal(got, want) {
		t.Errorf("spans\n%q, want\n%q", got, want)
	}
}

// On each backend a lock that is renewed, one lost and one in vain are counted, and no
// lock is active at the end.
func TestBackends(t *testing.T) {
	servers.Each(t, func(t *testing.T, url string) {
		backend, _, _ := strings.Cut(url, ":")
		p := newProbe(t, backend, nil)
		inner, err := backends.Open(t.Context(), url, backends.Observer(p.Observer()))
		testkit.Must(t, err)
		l := p.Locker(inner)
		lock, err := l.Lock(t.Context(), "otellock", distlock.TTL(6*time.Second))
		testkit.Must(t, err)
		if _, err := l.TryLock(t.Context(), "otellock"); !errors.Is(err, distlock.ErrHeld) {
			t.Error(err)
		}
		renewed := func() bool {
			_, values, _ := p.metrics(t)
			return values["distlock.renewal.margin backend="+backend] > 0
		}
		testkit.Until(t, "a renewal that was measured", renewed)
		testkit.Must(t, distlock.Break(t.Context(), l, "otellock", 0))
		<-lock.Done() // a broken lock is lost
		testkit.Should(t, l.Close())
		_, values, _ := p.metrics(t)
		for series, want := range map[string]int64{
			"distlock.acquire.duration backend=" + backend + " outcome=acquired": 1,
			"distlock.acquire.duration backend=" + backend + " outcome=held":     1,
			"distlock.acquire.waiting backend=" + backend:                        0,
			"distlock.lock.active backend=" + backend:                            0,
			"distlock.lock.lost backend=" + backend + " reason=gone":             1,
		} {
			if got, ok := values[series]; !ok || got != want {
				t.Errorf("%s is %d, want %d", series, got, want)
			}
		}
	})
}
