package otellock_test

import (
	"context"
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/integrations/otellock"
)

// Prometheus reads the instruments on /metrics.
func Example_prometheus() {
	exporter, err := prometheus.New()
	if err != nil {
		log.Fatal(err)
	}
	telemetry, err := otellock.New("redis", otellock.Options{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter)),
		Name:          otellock.Names("leader", "migrations"),
	})
	if err != nil {
		log.Fatal(err)
	}
	locker, err := backends.Open(context.Background(), "redis://localhost:6379", backends.Observer(telemetry.Observer()))
	if err != nil {
		log.Fatal(err)
	}
	locker = telemetry.Locker(locker)
	defer locker.Close()
	http.Handle("/metrics", promhttp.Handler())
	go func() { log.Print(http.ListenAndServe("localhost:2112", nil)) }()
	_ = distlock.Do(context.Background(), locker, "leader", func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
}
