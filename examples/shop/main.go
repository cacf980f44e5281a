// Command shop plays what shops use locks for, with several processes at once. It does so
// first without a lock and then with one:
//
//	go run ./examples/shop --url redis://localhost:6379               all scenes
//	go run ./examples/shop --url zk://localhost --scene flashsale     one of them
//
//	flashsale   5 items, 12 users click twice each: one order per user, none too many
//	packets     8 red packets, 24 grabs: each is grabbed once
//	migration   4 nodes start and migrate one database
//	payments    a method lock by name: 3 orders, each reported as paid to 4 nodes, are booked once
//
// Each process is this program, started once more. The database that they share is in the
// first one: it can read and write one value, and knows nothing of transactions.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"

	"github.com/distlock-go/distlock/backends"
)

func main() {
	if text := os.Getenv(workerEnv); text != "" {
		if err := work(context.Background(), text); err != nil {
			fmt.Fprintln(os.Stderr, "shop: worker:", err)
			os.Exit(1)
		}
		return
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := demonstrate(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// demonstrate plays the scenes that the arguments ask for, each without and with a lock.
// Its error says what went wrong with the lock; that it goes wrong without one is luck.
func demonstrate(ctx context.Context, args []string, w io.Writer) error {
	flags := flag.NewFlagSet("shop", flag.ContinueOnError)
	flags.SetOutput(w)
	url := flags.String("url", "", "`URL` of the backend; without it, that in $DISTLOCK_URL")
	name := flags.String("scene", "all", "flashsale, packets, migration, payments or all")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *url == "" {
		c, err := backends.FromEnv()
		if err != nil {
			return fmt.Errorf("no --url: %w", err)
		}
		*url = c.URL
	}
	chosen := scenes
	if *name != "all" {
		i := slices.IndexFunc(scenes, func(s scene) bool { return s.name == *name })
		if i < 0 {
			return fmt.Errorf("there is no scene %q, allowed are flashsale, packets, migration, payments and all", *name)
		}
		chosen = scenes[i : i+1]
	}
	for _, s := range chosen {
		for _, locked := range []bool{false, true} {
			if err := play(ctx, w, s, *url, locked); err != nil {
				return err
			}
		}
	}
	return nil
}

// play plays one scene once, prints the steps of each process, and returns what went
// wrong with the lock.
func play(ctx context.Context, w io.Writer, s scene, url string, locked bool) error {
	how := "without a lock"
	if locked {
		how = "with a lock"
	}
	fmt.Fprintf(w, "%s, %s:\n", s.title, how)
	db, err := openDatabase(s.values)
	if err != nil {
		return err
	}
	defer db.close()
	crew := &crew{url: url, scene: s.name, locked: locked, database: db.url}
	if err := errors.Join(crew.startAll(ctx, workers), crew.wait()); err != nil {
		return fmt.Errorf("%s, %s: %w", s.name, how, err)
	}
	db.print(w)
	verdict := s.verdict(db)
	fmt.Fprintf(w, "  => %s\n\n", verdict.text)
	if locked && verdict.wrong {
		return fmt.Errorf("%s, with a lock: %s", s.name, verdict.text)
	}
	return nil
}
