package otellock_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.yaml.in/yaml/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/integrations/otellock"
	"github.com/distlock-go/distlock/memlock"
)

// exported returns the metrics and the labels that Prometheus reads of all instruments.
func exported(t *testing.T) (metrics, labels []string) {
	t.Helper()
	registry := client.NewRegistry()
	exporter, err := prometheus.New(prometheus.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	telemetry, err := otellock.New("memory", otellock.Options{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter)), Name: otellock.Names("x"),
	})
	if err != nil {
		t.Fatal(err)
	}
	inner, err := memlock.New(memlock.NewStore(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	locker := telemetry.Locker(inner)
	if _, err := locker.Lock(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if err := locker.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, failed := context.Background(), distlock.ErrClosed
	o := telemetry.Observer()
	o.Acquired(distlock.Acquired{Ctx: ctx, Name: "x"})
	o.Released(distlock.Released{Ctx: ctx, Name: "x", Err: failed})
	o.Renewed(distlock.Renewed{Ctx: ctx, Name: "x", TTL: 3, Left: 2})
	o.Renewed(distlock.Renewed{Ctx: ctx, Name: "x", Err: failed})
	o.Lost(distlock.Lost{Ctx: ctx, Name: "x", Reason: "gone", Cause: distlock.ErrLost})
	o.CleanedUp(distlock.CleanedUp{Ctx: ctx, Name: "x", Err: failed})

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequestWithContext(ctx, "GET", "/metrics", nil))
	for _, found := range regexp.MustCompile(`(?m)^(distlock_\w+)\{`).FindAllStringSubmatch(page.Body.String(), -1) {
		metrics = append(metrics, found[1])
	}
	for _, found := range regexp.MustCompile(`[{,](\w+)="`).FindAllStringSubmatch(page.Body.String(), -1) {
		labels = append(labels, found[1])
	}
	return metrics, labels
}

// dashboard is what the tests look at in grafana.json.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
	Templating struct{ List []struct{ Query string } }
}

// read decodes a file of this folder.
func read(t *testing.T, file string, decode func([]byte, any) error, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := decode(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// queries returns those of the dashboard and of the alert rules.
func queries(t *testing.T) (all []string) {
	t.Helper()
	var d dashboard
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
			}
		}
	}
	read(t, "grafana.json", json.Unmarshal, &d)
	read(t, "alerts.yml", yaml.Unmarshal, &rules)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		all = append(all, v.Query)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			all = append(all, r.Expr)
		}
	}
	return all
}

// The dashboard and the alert rules ask for nothing that the instruments do not export,
// and the dashboard shows each of them.
func TestQueries(t *testing.T) {
	metrics, labels := exported(t)
	used := make(map[string]bool)
	all := queries(t)
	if len(all) < 15 {
		t.Fatalf("%d queries only", len(all))
	}
	for _, query := range all {
		for _, word := range regexp.MustCompile(`\b(distlock|error)_\w+`).FindAllString(query, -1) {
			used[word] = true
			if !slices.Contains(metrics, word) && !slices.Contains(labels, word) {
				t.Errorf("%s is no metric and no label\n%s", word, query)
			}
		}
	}
	for _, m := range metrics {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(m, "_sum"), "_count"), "_bucket")
		if !used[base] && !used[base+"_count"] && !used[base+"_bucket"] {
			t.Errorf("no query shows %s", m)
		}
	}
}

// The README shows what compiles, and each metric.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("prometheus_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "## OpenTelemetry")
	_, code, _ := strings.Cut(section, "```go\n")
	code, _, _ = strings.Cut(code, "```")
	lines := strings.Split(strings.TrimSpace(code), "\n")
	if len(lines) < 10 {
		t.Fatal("there is no code")
	}
	for _, line := range lines {
		line, _, _ = strings.Cut(line, " // ")
		if !strings.Contains(string(example), "\t"+line+"\n") {
			t.Errorf("the example does not have the line %q", line)
		}
	}
	metrics, _ := exported(t)
	for _, m := range metrics {
		m = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(m, "_sum"), "_count"), "_bucket")
		if !strings.Contains(section, "`"+m+"`") {
			t.Errorf("the table does not have %s", m)
		}
	}
}

// The page of the service shows each panel with its queries, as Prometheus takes them.
func TestServicePage(t *testing.T) {
	page, err := os.ReadFile("../../examples/service/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	read(t, "grafana.json", json.Unmarshal, &d)
	plain := strings.NewReplacer(`{distlock_backend=~"$backend"}`, "", `distlock_backend=~"$backend", `, "", "$__rate_interval", "5m")
	for _, p := range d.Panels {
		_, row, found := strings.Cut(string(page), "\n| "+p.Title+" | ")
		row, _, _ = strings.Cut(row, "\n")
		if !found {
			t.Errorf("there is no row for %q", p.Title)
		}
		for _, target := range p.Targets {
			if query := plain.Replace(target.Expr); !strings.Contains(row, "`"+query+"`") {
				t.Errorf("%q is without the query %s", p.Title, query)
			}
		}
	}
}
