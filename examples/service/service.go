package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/integrations/gocronlock"
	"github.com/distlock-go/distlock/integrations/otellock"
	"github.com/distlock-go/distlock/patterns"
)

// serve runs the service until ctx ends. Deferred calls end it in the order that a
// shutdown needs: no request, no job, no leader, and only then no locks.
func serve(ctx context.Context, config backends.Config, listener net.Listener, every time.Duration) (err error) {
	defer listener.Close()
	metrics := prometheus.NewRegistry()
	locker, err := open(ctx, config, metrics)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()

	standing, leave := context.WithCancel(context.WithoutCancel(ctx))
	election := patterns.Elect(standing, locker, "service/leader", func(ctx context.Context, term int64) error {
		slog.InfoContext(ctx, "leading", "term", term)
		<-ctx.Done() // what only one instance may do is done here, until the context ends
		return context.Cause(ctx)
	})
	defer func() {
		leave()
		_ = election.Wait()
	}()

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.New(locker, every)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scheduler.Shutdown()) }()
	_, err = scheduler.NewJob(gocron.DurationJob(every), gocron.NewTask(func() { slog.Info("the job runs") }),
		gocron.WithName("report"), gocron.WithEventListeners(gocron.AfterLockError(lockError)))
	if err != nil {
		return err
	}
	scheduler.Start()

	server := &http.Server{Handler: handler(election, metrics), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// lockError tells of what keeps a job from running anywhere: the store, or an interval that it
// cannot keep. gocron itself tells nobody.
func lockError(_ uuid.UUID, job string, err error) {
	if !errors.Is(err, gocronlock.ErrElsewhere) {
		slog.Warn("the job does not run", "job", job, "err", err)
	}
}

// open opens a Locker with its locks in metrics.
func open(ctx context.Context, config backends.Config, metrics prometheus.Registerer) (distlock.Locker, error) {
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(metrics))
	if err != nil {
		return nil, err
	}
	backend, _, _ := strings.Cut(config.URL, "://")
	telemetry, err := otellock.New(backend, otellock.Options{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter)),
		Name:          otellock.Names("service/leader", gocronlock.Prefix+"report"),
	})
	if err != nil {
		return nil, err
	}
	locker, err := config.Open(ctx, backends.Observer(telemetry.Observer()), backends.Logger(slog.Default()))
	if err != nil {
		return nil, err
	}
	return telemetry.Locker(locker), nil
}

func handler(election *patterns.Election, metrics *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /leader", func(w http.ResponseWriter, _ *http.Request) {
		term, ok := election.Leader()
		if !ok {
			http.Error(w, "another instance leads", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "leading, term %d\n", term)
	})
	return mux
}
