package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/supervise"
)

const runHelp = `Run runs a command while it holds the lock NAME, and passes its exit status through.

The command gets a process group of its own, the terminal if there is one, and in its
environment DISTLOCK_NAME, DISTLOCK_TOKEN (the fencing token, which rises with every
grant) and DISTLOCK_DEADLINE (when the lock ends unless it is renewed; it is). Signals
are passed on to the whole group. The rest of the environment is handed down as it is:
DISTLOCK_URL too, if it was set.

At a terminal the command is in the foreground, as if the shell had started it: Ctrl-C
reaches it alone, and Ctrl-Z stops both it and distlock. Nothing renews the lock then:
once the TTL has passed the name is free, and fg or bg ends the command, with status
75, instead of waking it. In a pipeline the command gets the terminal if it asks for it.

If the lock is being lost, because the backend does not answer or somebody broke it,
the group gets TERM, and KILL when --kill-after has passed: both before the lease can
be granted to another, unless it was taken away by force. If distlock itself is
killed, the name is free when the TTL has passed, and on Linux the command dies with it,
but not what that has started.`

type runOptions struct {
	wait      time.Duration
	noWait    bool
	busy      int
	killAfter time.Duration
	onLost    string
	minHold   time.Duration
	oncePer   time.Duration
	verbose   bool

	tryOnly    bool
	toldHolder bool // the user knows that the name is held, and by whom
}

func runCommand(signals *interrupts) *cobra.Command {
	o := runOptions{}
	cmd := &cobra.Command{
		Use:   "run [flags] NAME -- command [argument...]",
		Short: "Run a command under a lock",
		Long:  runHelp,
		Example: `  distlock run --no-wait nightly -- /usr/local/bin/report
  distlock run --wait 10s --ttl 15s deploy/web -- make deploy
  distlock run --no-wait --once-per 1h hourly -- ./hourly.sh`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 && args[1] != "--" && strings.HasPrefix(args[1], "-") {
				return fmt.Errorf("%s comes after NAME, where the command begins: flags go before NAME", args[1])
			}
			if len(args) < 2 || len(args) == 2 && args[1] == "--" {
				return errors.New("a NAME and a command are needed, like: distlock run nightly -- ./report")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd.Flags().Changed("wait")); err != nil {
				return usage(err)
			}
			name, command := args[0], args[1:]
			if command[0] == "--" {
				command = command[1:]
			}
			return o.run(cmd, signals, name, command)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows NAME is the command's
	f.Duration("ttl", 0, "how long the name stays held after a crash; renewed while the command runs (default 30s)")
	f.String("holder", "", "`text` for whoever inspects the lock (default host, process and command with its arguments)")
	f.DurationVar(&o.wait, "wait", 0, "wait for the name for this long at the most; 0 is --no-wait (default for ever)")
	f.BoolVarP(&o.noWait, "no-wait", "n", false, "do not wait if the name is held")
	f.IntVarP(&o.busy, "conflict-exit-code", "E", statusBusy, "exit `status` if the name is held or the wait is over")
	f.DurationVar(&o.killAfter, "kill-after", 0, "between TERM and KILL when the lock is lost (default a sixth of the TTL, at most 10s)")
	f.StringVar(&o.onLost, "on-lost", "kill", "what happens to the command when the lock is lost: kill or warn")
	f.DurationVar(&o.minHold, "min-hold", 0, "hold the name for this long at the least, if the command succeeds faster")
	f.DurationVar(&o.oncePer, "once-per", 0, "keep the name for this long from the start, if the command succeeds: once per period over all machines")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "tell how long it took to get the lock, its token, and who holds a busy one")
	addBackendFlags(cmd)
	cmd.Long += "\n" + exitHelp
	return cmd
}

func (o *runOptions) check(waits bool) error {
	o.tryOnly = o.noWait || waits && o.wait == 0 // as with flock(1)
	switch {
	case o.noWait && waits:
		return errors.New("--wait and --no-wait exclude each other")
	case o.wait < 0:
		return fmt.Errorf("--wait is %v, allowed is 0 or more", o.wait)
	case o.busy < 0 || o.busy > 255:
		return fmt.Errorf("-E is %d, allowed are 0 to 255", o.busy)
	case o.onLost != "kill" && o.onLost != "warn":
		return fmt.Errorf("--on-lost is %q, allowed are kill and warn", o.onLost)
	case o.killAfter < 0:
		return fmt.Errorf("--kill-after is %v, allowed is 0 or more", o.killAfter)
	case o.minHold < 0 || o.oncePer < 0 || o.minHold > 0 && o.oncePer > 0:
		return errors.New("--min-hold and --once-per take a duration above 0, and exclude each other")
	}
	return nil
}

// checkLease looks at what makes sense only with the TTL that the backend granted.
func (o *runOptions) checkLease(graceSet bool, lease time.Duration) error {
	if !graceSet {
		o.killAfter = min(lease/6, 10*time.Second)
	}
	switch {
	case o.killAfter > lease/3:
		return fmt.Errorf("--kill-after is %v, allowed with this TTL is up to %v: one renewal that fails must not end the command",
			o.killAfter, (lease / 3).Round(time.Millisecond))
	case o.oncePer > 0 && o.oncePer < lease:
		return fmt.Errorf("--once-per is %v, allowed with this TTL is %v or more: the name stays held for the TTL",
			o.oncePer, lease.Round(time.Millisecond))
	}
	return nil
}

func (o *runOptions) run(cmd *cobra.Command, signals *interrupts, name string, args []string) error {
	config, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	if config.Holder == "" && !namesHolder(config.URL) {
		config.Holder = holderText(args)
	}
	b, err := openConfig(cmd.Context(), config, openurl.Redact(config.URL))
	if err != nil {
		if signals.ended() {
			return signals.exit()
		}
		return err
	}
	start := time.Now()
	lock, err := o.acquire(cmd.Context(), b.locker, name)
	if err != nil {
		if signals.ended() {
			closeWithin(b.locker, time.Second)
			return signals.exit()
		}
		closeTelling(b.locker)
		return o.refused(b, name, err)
	}
	lease := time.Until(lock.Deadline())
	if err := o.checkLease(cmd.Flags().Changed("kill-after"), lease); err != nil {
		closeTelling(b.locker)
		return usage(err)
	}
	o.tell("%s held after %v, token %d", printable(name), time.Since(start).Round(time.Millisecond), lock.Token())
	return o.underLock(cmd.Context(), signals, b, lock, args)
}

// holderText says who holds the lock, so that an operator finds the process.
func holderText(args []string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	text := fmt.Sprintf("%s pid %d %s", host, os.Getpid(), strings.Join(args, " "))
	return strings.ToValidUTF8(text[:min(len(text), distlock.MaxHolder)], "")
}

// namesHolder reports whether a URL has a holder's text. What is wrong with the URL is
// for whoever opens it to say.
func namesHolder(url string) bool {
	u, err := openurl.Parse(url)
	return err == nil && u.Text("holder", "") != ""
}

func (o *runOptions) acquire(ctx context.Context, l distlock.Locker, name string) (distlock.Lock, error) {
	if o.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.wait)
		defer cancel()
	}
	if o.tryOnly || o.verbose { // who waits should know for whom
		lock, err := l.TryLock(ctx, name)
		if errors.Is(err, distlock.ErrHeld) {
			o.toldHolder = o.tellHolder(ctx, l, name)
		}
		if o.tryOnly || !errors.Is(err, distlock.ErrHeld) {
			return lock, err
		}
	}
	return l.Lock(ctx, name)
}

// tellHolder says who holds the name, as far as that can be known in a moment, and
// reports whether it was.
func (o *runOptions) tellHolder(ctx context.Context, l distlock.Locker, name string) bool {
	if !o.verbose {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	st, err := distlock.Inspect(ctx, l, name)
	if err != nil || !st.Held {
		return false
	}
	say("%s is held by %s, token %d", printable(name), printable(st.Holder), st.Token)
	return true
}

// refused turns a failed acquisition into an exit status.
func (o *runOptions) refused(b *backend, name string, err error) error {
	switch {
	case errors.Is(err, distlock.ErrHeld) && (!o.verbose || o.tryOnly && o.toldHolder):
		return &exit{status: o.busy}
	case errors.Is(err, distlock.ErrHeld) && o.wait > 0:
		return &exit{status: o.busy, err: fmt.Errorf("%s did not become free within %v", printable(name), o.wait)}
	case errors.Is(err, distlock.ErrHeld):
		return &exit{status: o.busy, err: err}
	case errors.Is(err, distlock.ErrInvalid):
		return usage(err)
	}
	return b.failed(err)
}

// underLock runs the command and gives the name back, now or later.
func (o *runOptions) underLock(ctx context.Context, signals *interrupts, b *backend, lock distlock.Lock, args []string) error {
	received := signals.passOn()
	if received == nil {
		closeWithin(b.locker, time.Second)
		return signals.exit()
	}
	start := time.Now()
	out, err := supervise.Run(lock, supervise.Command{
		Args:        args,
		Grace:       o.killAfter,
		KeepRunning: o.onLost == "warn",
		Signals:     received,
		Tell:        func(format string, args ...any) { say("%s: %s", b.url, named(fmt.Sprintf(format, args...))) },
	})
	signals.takeBack()
	kept := false
	if err == nil && out.Status == 0 && out.Lost == nil {
		if kept, err = o.keep(ctx, lock, time.Since(start)); err != nil {
			err = fmt.Errorf("the command has succeeded, but the name could not be kept: %w", err)
		}
	}
	switch {
	case kept:
	case out.Lost != nil:
		// There is nothing to unlock any more, and the backend may be the
		// reason: it gets a moment to be tidied up.
		closeWithin(b.locker, time.Second)
	default:
		closeTelling(b.locker) // unlocks
	}
	if err != nil {
		return notRun(err)
	}
	switch {
	case out.Lost != nil && o.onLost == "kill":
		return &exit{status: statusLost}
	case out.Interrupted:
		return &exit{status: out.Status, interrupted: true, group: true}
	case out.Status != 0:
		return &exit{status: out.Status}
	}
	return nil
}

// notRun gives the errors of supervise.Run, and of keep, their exit statuses.
func notRun(err error) error {
	status := statusFailed
	switch {
	case errors.Is(err, supervise.ErrNotFound):
		status = statusNotFound
	case errors.Is(err, supervise.ErrNotExecutable):
		status = statusNotExecutable
	case errors.Is(err, supervise.ErrNotStarted):
		status = statusLost
	}
	return &exit{status: status, err: err}
}

// keep has the name stay held after the command, where --min-hold or --once-per
// ask for it. The store is told to, so that its clock decides, and this process can
// go: then kept is true, and the Locker must not be closed. A backend that does not
// take so long a TTL is held by waiting here.
func (o *runOptions) keep(ctx context.Context, lock distlock.Lock, ran time.Duration) (kept bool, err error) {
	left := max(o.minHold, o.oncePer) - ran
	if left <= 0 {
		return false, nil
	}
	patience, cancel := context.WithTimeout(ctx, keepPatience)
	defer cancel()
	err = lock.Extend(patience, left)
	if !errors.Is(err, distlock.ErrInvalid) {
		return err == nil, err
	}
	o.tell("the backend cannot hold the name for %v by itself; waiting", left.Round(time.Second))
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case <-lock.Done():
		return false, lock.Err()
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// keepPatience is how long the request to keep the name may take.
const keepPatience = 10 * time.Second

func (o *runOptions) tell(format string, args ...any) {
	if o.verbose {
		say(format, args...)
	}
}

// say tells the user something that is no reason to stop.
func say(format string, args ...any) {
	fmt.Fprintln(os.Stderr, "distlock:", named(fmt.Sprintf(format, args...)))
}

// named leaves out the name of the library at the start of its errors, which is
// this program's too.
func named(text string) string { return strings.TrimPrefix(text, "distlock: ") }

// closeTelling closes l and tells if something could not be released: that is no
// failure of what the user asked for, and ends with the TTL.
func closeTelling(l distlock.Locker) {
	if err := l.Close(); err != nil {
		say("%v", err)
	}
}

// closeWithin closes l as far as that can be done in d. The process ends anyway.
func closeWithin(l distlock.Locker, d time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Close() // the loss has been told
	}()
	select {
	case <-done:
	case <-time.After(d):
	}
}
