package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/distlock-go/distlock"
)

const inspectHelp = `Inspect shows the holder of NAME, its token, since when it holds, how long the lease
still runs unless it is renewed, and how many processes wait. The exit status is 0 if NAME
is held and 1 if it is free. Without NAME it lists the names that are held. What the
backend does not keep is shown as "-".

A name that run takes with --permits, --shared or --exclusive is itself free: its places
are the names NAME/0, NAME/1 and so on, and the next in line holds NAME/next. Look at them
with --prefix NAME/.

With --token-base it prints one number, at least as high as every token that the store
has granted until now: the token_base for the URL of another store, to move there. Ask
when the last client of the old store has stopped. It takes and frees a lock for that, on
a random name.`

type inspectOptions struct {
	prefix              string
	asJSON, watch, base bool
	every               time.Duration
	timeout             timeout
}

func inspectCommand() *cobra.Command {
	var o inspectOptions
	cmd := &cobra.Command{
		Use:               "inspect [flags] [NAME]",
		Short:             "Show the holder of a lock, or all locks",
		Long:              inspectHelp,
		Args:              atMostOne("NAME"),
		ValidArgsFunction: completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(len(args) == 1, cmd.Flags()); err != nil {
				return usage(err)
			}
			return o.inspect(cmd, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.prefix, "prefix", "", "list only names that start with `text`")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object per lock and line; of NAME always one")
	f.BoolVar(&o.watch, "watch", false, "print again whenever something changes, until interrupted")
	f.BoolVar(&o.base, "token-base", false, "print the token_base for the URL of a store to move to")
	f.DurationVar(&o.every, "every", time.Second, "how often --watch looks")
	o.timeout.add(cmd, "how long the backend may take to connect, and how long for each look")
	addBackendFlags(cmd)
	return cmd
}

func (o *inspectOptions) check(name bool, f *pflag.FlagSet) error {
	prefix := f.Changed("prefix")
	switch {
	case f.Changed("every") && !o.watch:
		return errors.New("--every is for --watch")
	case name && prefix:
		return errors.New("NAME and --prefix exclude each other")
	case o.every <= 0:
		return fmt.Errorf("--every is %v, allowed is more than 0", o.every)
	case o.base && (name || prefix || o.asJSON || o.watch):
		return errors.New("--token-base is for the whole store, and excludes NAME, --prefix, --json and --watch")
	}
	return o.timeout.check()
}

func (o *inspectOptions) inspect(cmd *cobra.Command, args []string) error {
	b, err := o.timeout.open(cmd)
	if err != nil {
		return err
	}
	defer closeTelling(b.locker)
	if o.base {
		return o.timeout.bound(cmd.Context(), func(ctx context.Context) error { return b.tokenBase(ctx, cmd.OutOrStdout()) })
	}
	look := func(ctx context.Context) (sts []distlock.Status, err error) {
		err = o.timeout.bound(ctx, func(ctx context.Context) error {
			sts, err = lookAt(ctx, b.locker, args, o.prefix)
			return err
		})
		return sts, err
	}
	show := showTable
	switch {
	case o.asJSON:
		show = showJSON
	case o.watch:
		show = showWhen
	}
	return b.watch(cmd.Context(), cmd.OutOrStdout(), look, show, len(args) == 1, o.watch, o.every)
}

// lookAt returns the status of the name in args, or of all that are held.
func lookAt(ctx context.Context, l distlock.Locker, args []string, prefix string) ([]distlock.Status, error) {
	if len(args) == 0 {
		return distlock.List(ctx, l, prefix)
	}
	st, err := distlock.Inspect(ctx, l, args[0])
	return []distlock.Status{st}, err
}

// showWhen is showTable with the time before it.
func showWhen(w io.Writer, sts []distlock.Status) error {
	fmt.Fprintf(w, "-- %s\n", time.Now().Format(time.TimeOnly))
	return showTable(w, sts)
}

type shower func(io.Writer, []distlock.Status) error

// watch shows what look returns, once, or whenever it has changed. Once and of one name, it also tells
// by the exit status whether that is held.
func (b *backend) watch(ctx context.Context, w io.Writer, look func(context.Context) ([]distlock.Status, error),
	show shower, oneName, watch bool, every time.Duration) error {
	last, failing := "", false
	for first := true; ; first = false {
		sts, err := look(ctx)
		switch {
		case ctx.Err() != nil && watch:
			return nil
		case ctx.Err() != nil: // nothing is known of the name
			return ctx.Err()
		case errors.Is(err, distlock.ErrInvalid):
			return usage(err)
		case err != nil && (first || !watch):
			return b.failed(err)
		case err != nil && !failing:
			say("%v; it looks again every %v", b.failed(err), every) // a failover is what somebody may watch for
		}
		if now := essence(sts); err == nil && (first || failing || now != last) {
			if err := show(w, sts); err != nil {
				return err
			}
			last = now
		}
		failing = err != nil
		if !watch {
			if oneName && !sts[0].Held {
				return &exit{status: statusBusy} // what was shown says it
			}
			return nil
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return nil
		}
	}
}

// essence is what makes a change worth showing: not the time that runs off.
func essence(sts []distlock.Status) string {
	var b strings.Builder
	for _, st := range sts {
		fmt.Fprintf(&b, "%q %t %d %d\n", st.Name, st.Held, st.Token, st.Waiters)
	}
	return b.String()
}

func showTable(w io.Writer, sts []distlock.Status) error {
	if len(sts) == 0 {
		_, err := fmt.Fprintln(w, "no locks are held")
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tSTATE\tTOKEN\tSINCE\tLEASE LEFT\tWAITERS\tHOLDER")
	for _, st := range sts {
		state, token, since, left, waiters, holder := "free", "-", "-", "-", "-", "-"
		if st.Held {
			state = "held"
		}
		if st.Token > 0 {
			token = fmt.Sprint(st.Token)
		}
		if !st.AcquiredAt.IsZero() {
			since = st.AcquiredAt.UTC().Format("2006-01-02 15:04:05Z")
		}
		if st.Remaining > 0 {
			left = st.Remaining.Round(100 * time.Millisecond).String()
		}
		if st.Waiters >= 0 {
			waiters = fmt.Sprint(st.Waiters)
		}
		if st.Holder != "" {
			holder = printable(st.Holder)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(st.Name), state, token, since, left, waiters, holder)
	}
	return tw.Flush()
}

// printable keeps what others wrote into a name from playing with the terminal.
func printable(s string) string {
	if q := fmt.Sprintf("%q", s); q != `"`+s+`"` {
		return q
	}
	return s
}

func showJSON(w io.Writer, sts []distlock.Status) error {
	enc := json.NewEncoder(escaped{w})
	for _, st := range sts {
		line := map[string]any{"name": st.Name, "held": st.Held, "token": st.Token}
		if st.Held {
			line["holder"] = st.Holder
		}
		if !st.AcquiredAt.IsZero() {
			line["acquired_at"] = st.AcquiredAt.UTC()
		}
		if st.Remaining > 0 {
			line["remaining_ms"] = st.Remaining.Milliseconds()
		}
		if st.Waiters >= 0 {
			line["waiters"] = st.Waiters
		}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
