// Command service is an HTTP service of which several instances run: one of them leads,
// each tick of its cron job runs once, and /metrics has what its locks do.
//
//	cd examples/service
//	DISTLOCK_URL=redis://localhost:6379 go run . -addr localhost:8080
//	DISTLOCK_URL=redis://localhost:6379 go run . -addr localhost:8081
//
// README.md has what Prometheus and Grafana show of it.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/distlock-go/distlock/backends"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "`host:port` to listen on")
	every := flag.Duration("every", 10*time.Second, "interval of the job")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := backends.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	slog.Info("listening", "addr", listener.Addr().String())
	if err := serve(ctx, config, listener, *every); err != nil {
		log.Fatal(err)
	}
}
