package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
	"github.com/distlock-go/distlock/internal/supervise"
)

const runHelp = `Run runs a command while it holds the lock NAME, and passes its exit status through.
The environment of the command has DISTLOCK_NAME, DISTLOCK_TOKEN (the fencing token, which
rises with every grant) and DISTLOCK_DEADLINE (when the lock would end without renewal, as of
the start of the command: UTC, as 2006-01-02T15:04:05.25Z). If the lock is being lost, the command gets TERM, and KILL when --kill-after has passed. One
that runs as another user, as with sudo, gets neither, and runs on. All that follows NAME is
the command; the -- may be left out.

With --permits N, N holders have NAME at a time, each with the token of its slot. With --shared
any number of readers up to --readers have it, or one that comes with --exclusive; it takes
one lock for each of these readers. All that use NAME must say the same number. A plain
run of NAME does not know of either, and inspect shows the holders by --prefix NAME/.

More: "distlock help running" (signals, terminals, losses, --once-per), "distlock help exit".`

type runOptions struct {
	wait      time.Duration
	noWait    bool
	busy      int
	killAfter time.Duration
	onLost    string
	minHold   time.Duration
	oncePer   time.Duration
	permits   int
	shared    bool
	exclusive bool
	readers   int
	verbose   bool

	tryOnly    bool
	toldHolder bool // the user knows that the name is held, and the holder
}

func runCommand(signals *interrupts) *cobra.Command {
	o := runOptions{}
	cmd := &cobra.Command{
		Use:   "run [flags] NAME -- command [argument...]",
		Short: "Run a command under a lock",
		Long:  runHelp,
		Example: `  distlock run --no-wait nightly -- /usr/local/bin/report
  distlock run --wait 10s --ttl 15s deploy/web -- make deploy
  distlock run --no-wait --once-per 1h hourly -- ./hourly.sh
  distlock run --permits 3 encoder -- ./encode film.mov`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() == 0 && !slices.Contains(args, "--") { // else "run -- sudo ./report" would run ./report
				return errors.New("a NAME is needed before --, like: distlock run nightly -- ./report")
			}
			if len(args) > 1 && args[1] != "--" && strings.HasPrefix(args[1], "-") {
				return fmt.Errorf("%s comes after NAME, where the command begins: flags go before NAME", args[1])
			}
			if len(args) < 2 || len(args) == 2 && args[1] == "--" {
				return errors.New("a NAME and a command are needed, like: distlock run nightly -- ./report")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(o.check(cmd.Flags()), o.checkSharing(cmd.Flags())); err != nil {
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
	f.Duration("ttl", 0, "how long the name stays held after a crash; renewed while the command runs (default 30s; on ZooKeeper less, as far as its sessions allow)")
	f.String("holder", "", "`text` that inspect shows for the lock (default host, process and command, without its arguments)")
	f.DurationVar(&o.wait, "wait", 0, "wait for the name for this long at the most; 0 is --no-wait (default for ever)")
	f.BoolVarP(&o.noWait, "no-wait", "n", false, "do not wait if the name is held; only a terminal, or -v, is told why")
	f.IntVarP(&o.busy, "conflict-exit-code", "E", statusBusy, "exit `status` if the name is held or the wait is over")
	f.DurationVar(&o.killAfter, "kill-after", 0, "between TERM and KILL when the lock is lost, up to a third of the TTL (default a sixth, at most 10s)")
	f.StringVar(&o.onLost, "on-lost", "kill", "what happens to the command when the lock is lost: kill or warn")
	f.DurationVar(&o.minHold, "min-hold", 0, "hold the name for this long from the start, if the command succeeds faster")
	f.DurationVar(&o.oncePer, "once-per", 0, "run at most once in this period over all machines: keep the name for it, less a tenth or 30s, if the command succeeds; on ZooKeeper, and on Redlock beyond its max_ttl, distlock stays for that long")
	f.IntVar(&o.permits, "permits", 0, "let this `number` of holders have NAME at a time")
	f.BoolVar(&o.shared, "shared", false, "hold NAME beside others that say --shared")
	f.BoolVar(&o.exclusive, "exclusive", false, "hold NAME alone, also without those that say --shared")
	f.IntVar(&o.readers, "readers", 10, "how many may hold NAME by --shared at a time")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "tell how long it took to get the lock, its token, the holder of a busy one, and what the store warns of")
	addBackendFlags(cmd)
	completeWords(cmd, "on-lost", false, "kill", "warn")
	return cmd
}

func (o *runOptions) check(f *pflag.FlagSet) error {
	waits := f.Changed("wait")
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
	case o.onLost == "warn" && f.Changed("kill-after"):
		return errors.New("--kill-after is for --on-lost kill")
	case f.Changed("min-hold") && o.minHold <= 0:
		return fmt.Errorf("--min-hold is %v, allowed is more than 0", o.minHold)
	case f.Changed("once-per") && o.oncePer <= 0:
		return fmt.Errorf("--once-per is %v, allowed is more than 0", o.oncePer)
	case o.minHold > 0 && o.oncePer > 0:
		return errors.New("--min-hold and --once-per exclude each other")
	}
	return nil
}

func (o *runOptions) run(cmd *cobra.Command, signals *interrupts, name string, args []string) error {
	outliveReaders()
	config, err := loadServer(cmd)
	if err != nil {
		return err
	}
	ttl := longestTTL(config)
	if err := o.checkKillAfter(ttl); err != nil {
		return err
	}
	if config.Holder == "" && !namesHolder(config.URL) {
		config.Holder = holderText(args[0])
	}
	b, err := openConfig(cmd.Context(), config, openurl.Redact(config.URL), o.verbose)
	if err != nil {
		if signals.ended() {
			return signals.exit()
		}
		return err
	}
	if c, ok := b.locker.(capable); ok {
		if err := o.checkKillAfter(min(ttl, c.Capabilities().MaxTTL)); err != nil {
			return tellAndClose(b.locker, err)
		}
	}
	start := time.Now()
	lock, err := o.acquire(cmd.Context(), o.sharing(b.locker), name)
	if err != nil {
		if signals.ended() {
			closeWithin(b.locker, time.Second)
			return signals.exit()
		}
		return tellAndClose(b.locker, o.refused(b, name, err))
	}
	o.fitLease(cmd.Flags().Changed("kill-after"), time.Until(lock.Deadline()))
	o.tell("%q held after %v, token %d", name, time.Since(start).Round(time.Millisecond), lock.Token())
	return o.underLock(cmd.Context(), signals, b, lock, args)
}

// holderText describes this process as the holder, so that an operator finds it. The
// arguments of a program may be passwords.
func holderText(program string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	text := fmt.Sprintf("%s pid %d %s", host, os.Getpid(), program)
	return strings.ToValidUTF8(text[:min(len(text), distlock.MaxHolder)], "")
}

// namesHolder reports whether a URL has a holder's text. An error in the URL is
// reported when the URL is opened.
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
	if o.tryOnly || o.verbose { // a waiting user should know the holder
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

// tellHolder names the holder, as far as that can be known in a moment, and reports
// whether it could.
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
	say("%q is held by %s, token %d", name, printable(st.Holder), st.Token)
	return true
}

// refused turns a failed acquisition into an exit status.
func (o *runOptions) refused(b *backend, name string, err error) error {
	switch {
	case errors.Is(err, distlock.ErrHeld) && o.tryOnly && (!o.verbose && !atTerminal() || o.toldHolder):
		return &exit{status: o.busy} // in a script the status says it, as with flock(1)
	case errors.Is(err, distlock.ErrHeld) && troubled(err):
		return b.failed(err)
	case errors.Is(err, distlock.ErrHeld) && o.wait > 0:
		return &exit{status: o.busy, err: fmt.Errorf("%q did not become free within %v", name, o.wait)}
	case errors.Is(err, distlock.ErrHeld):
		return &exit{status: o.busy, err: err}
	case errors.Is(err, distlock.ErrInvalid):
		return usage(err)
	}
	return b.failed(err)
}

// troubled reports whether a name that was held was not to be had because the store has failed since: then err has its error, too.
func troubled(err error) bool {
	switch e := err.(type) {
	case nil, *distlock.HeldError:
		return false
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), troubled)
	}
	if under := errors.Unwrap(err); under != nil {
		return troubled(under)
	}
	return !errors.Is(err, distlock.ErrHeld) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
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
		Trouble:     b.renewals.last,
		Tell:        func(format string, args ...any) { say("%s: %s", b.url, named(fmt.Sprintf(format, args...))) },
	})
	signals.takeBack()
	if errors.Is(err, supervise.ErrNotStarted) {
		closeWithin(b.locker, time.Second) // the backend may be the reason of the loss
		return notRun(err)
	}
	if err != nil {
		return tellAndClose(b.locker, notRun(err)) // unlocks
	}
	after := kept{lost: out.Lost, left: out.Running} // then the name stays taken until the lease ends
	if out.Lost == nil && out.Status == 0 {
		after = o.keep(ctx, b, lock, start)
	}
	switch {
	case after.left:
	case after.lost != nil:
		// There is nothing to unlock any more, and the backend may be the
		// reason: it gets a moment to be tidied up.
		closeWithin(b.locker, time.Second)
	default:
		after.lost = release(b.locker, lock)
	}
	if after.lost != nil && out.Lost == nil {
		say("%s: the lock was lost while the command ran, or after that; the command has ended by itself: %s", b.url, named(after.lost.Error()))
	}
	switch {
	case after.interrupted:
		return signals.exit()
	case after.lost != nil && o.onLost == "kill":
		return &exit{status: statusLost}
	case out.Interrupted:
		return &exit{status: out.Status, interrupted: true, group: true}
	case out.Status != 0: // a signal may have come by way of this process, which a script around has seen as well
		return &exit{status: out.Status, interrupted: out.Status == 128+int(syscall.SIGINT) && signals.passedInterrupt()}
	}
	return nil
}

// release gives the name back and closes l. It returns the loss that only the release
// has found: somebody has taken the lock away since its last renewal.
func release(l distlock.Locker, lock distlock.Lock) error {
	closeTelling(l) // unlocks
	known, cancel := context.WithCancel(context.Background())
	cancel() // what the release has found is known by now, or is not waited for
	if err := lock.Unlock(known); errors.Is(err, distlock.ErrLost) {
		return err
	}
	return nil
}

// notRun gives the errors of supervise.Run their exit statuses.
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

// atTerminal reports whether a person reads what is said.
func atTerminal() bool { return term.IsTerminal(int(os.Stderr.Fd())) }

func (o *runOptions) tell(format string, args ...any) {
	if o.verbose {
		say(format, args...)
	}
}

// sayPatience is how long say waits for a reader.
const sayPatience = time.Second

// say tells the user something without stopping. A halted terminal, or a pipe that nobody reads, must not keep a name held.
func say(format string, args ...any) {
	text, told := named(fmt.Sprintf(format, args...)), make(chan struct{})
	go func() {
		defer close(told)
		fmt.Fprintln(stderr, "distlock:", text)
	}()
	select {
	case <-told:
	case <-time.After(sayPatience):
	}
}

// named leaves out the name of the library at the start of its errors: it is this
// program's too.
func named(text string) string { return strings.TrimPrefix(text, "distlock: ") }

// closeTelling closes l and tells if something could not be released. The lease then
// ends with the TTL, and what the user asked for has not failed.
func closeTelling(l distlock.Locker) {
	if err := l.Close(); err != nil {
		say("%v", err)
	}
}

// tellAndClose tells err before it closes l: that takes seconds if the backend does not answer.
// What it returns has the exit status alone.
func tellAndClose(l distlock.Locker, err error) error {
	e := exitOf(err)
	if e.err != nil {
		say("%v", e.err)
	}
	closeTelling(l)
	return &exit{status: e.status}
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
