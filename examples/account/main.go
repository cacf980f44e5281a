// Command account is the classic proof that a lock works. An account has a balance of
// 1,000, and ten processes withdraw 100 each, at the same time. They read the balance,
// compute for a while, and write it back.
//
//	go run ./examples/account --url redis://localhost:6379
//
// It does so in seven ways, and prints of each what happened over time, the last balance and
// what the workers could tell their callers:
//
//	none     no lock: withdrawals are lost, and nobody is told
//	version  no lock, but a write names the version that it replaces: nothing is lost, and
//	         all but one of those that come at the same time are turned away
//	try      TryLock: the same, before they have worked in vain
//	retry    TryLock again every 100 ms: all withdraw, in no order, and pauses are lost
//	lock     Lock: all withdraw, one right after the other
//	outlast  Lock, and one worker works for longer than its lease: renewal covers it
//	fenced   Lock, and one worker is stopped for longer than its lease, and wakes up without
//	         knowing that it has lost the lock; the account refuses its write, for it has seen
//	         a higher fencing token
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
	"time"

	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/driver"
)

func main() {
	if os.Getenv(workerEnv) != "" {
		work(os.Stdin, os.Stdout)
		return
	}
	// A stopped worker must not be left behind, so ^C ends the run in order.
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := demonstrate(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "account:", err)
		os.Exit(1)
	}
}

// demonstrate runs the modes that the arguments ask for.
func demonstrate(ctx context.Context, args []string, w io.Writer) error {
	flags := flag.NewFlagSet("account", flag.ContinueOnError)
	flags.SetOutput(w)
	// No default: --help would show it, and the password in it.
	url := flags.String("url", "", "`URL` of the backend, redis://, mysql://, postgres://, zk:// or etcd://; without it, that in $DISTLOCK_URL")
	ttl := flags.Duration("ttl", 3*time.Second, "lease of the lock; 0 means that of the URL")
	name := flags.String("mode", "all", "none, version, try, retry, lock, outlast, fenced or all")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	chosen := modes
	if *name != "all" {
		i := slices.IndexFunc(modes, func(m mode) bool { return m.name == *name })
		if i < 0 {
			return fmt.Errorf("there is no mode %q, allowed are none, version, try, retry, lock, outlast, fenced and all", *name)
		}
		chosen = modes[i : i+1]
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q: there are no arguments but flags", flags.Arg(0))
	}
	if *url == "" {
		c, err := backends.FromEnv()
		if err != nil {
			return fmt.Errorf("no --url: %w", err)
		}
		*url = c.URL
	}
	s := settings{*url, backends.Duration(*ttl)}
	if err := checkBackend(ctx, s); err != nil {
		return err
	}
	var played []*run
	for _, m := range chosen {
		fmt.Fprintf(w, "Ten withdrawals of %d from %d, %s:\n", amount, opening, m.title)
		r, err := playMode(ctx, m, s)
		if err != nil {
			return err
		}
		r.print(w)
		if err := r.verdict(); err != nil {
			return err
		}
		played = append(played, r)
	}
	if len(played) > 1 {
		summary(w, played)
	}
	return nil
}

// checkBackend fails, before ten processes do, if the backend cannot be used.
func checkBackend(ctx context.Context, s settings) error {
	locker, err := backends.Config{URL: s.url, TTL: s.ttl}.Open(ctx)
	if err != nil {
		return err
	}
	defer locker.Close()
	c, ok := locker.(interface{ Capabilities() driver.Capabilities })
	if ok && c.Capabilities().Backend == "memory" {
		return errors.New("mem:// is the memory of one process, and this needs several: " +
			"pass the --url of a server (redis://, mysql://, postgres://, zk:// or etcd://)")
	}
	return nil
}
