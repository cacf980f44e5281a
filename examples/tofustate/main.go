// Command tofustate keeps the state of OpenTofu and Terraform in a folder, and locks
// it on any backend of distlock. Several of them may serve one folder.
//
//	DISTLOCK_URL=redis://localhost:6379 go run ./examples/tofustate -dir states
//
//	terraform {
//	  backend "http" {
//	    address        = "http://127.0.0.1:8490/prod"
//	    lock_address   = "http://127.0.0.1:8490/prod"
//	    unlock_address = "http://127.0.0.1:8490/prod"
//	  }
//	}
//
// The tests run the protocol's messages, and the programs themselves where they are on PATH:
// Terraform 1.11.4 was. Of two runs at once the second is refused, and shown the holder;
// force-unlock at another server frees the state; the first run then cannot write it any
// more.
//
// It has no users and no TLS: it shows the locking, and listens on loopback only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/distlock-go/distlock/backends"
)

func main() {
	dir := flag.String("dir", "states", "`folder` of the states")
	port := flag.Int("port", 8490, "port on 127.0.0.1")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *dir, fmt.Sprintf("127.0.0.1:%d", *port)); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, dir, addr string) error {
	config, err := backends.FromEnv()
	if err != nil {
		return err
	}
	locker, err := config.Open(ctx)
	if err != nil {
		return err
	}
	defer locker.Close() // frees the states locked by this server
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Printf("states in %s at http://%s", dir, listener.Addr())
	server := &http.Server{Handler: NewServer(dir, locker), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
