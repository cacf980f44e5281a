package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/distlock-go/distlock"
)

func inspectCommand() *cobra.Command {
	var prefix string
	var asJSON, watch bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "inspect [flags] [NAME]",
		Short: "Show who holds a lock, or all locks",
		Long: `Inspect shows the holder of NAME, its token, since when it holds, how long the lease
still runs unless it is renewed, and how many processes wait. Without NAME it lists
the names that are held. What the backend does not keep is shown as "-".`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && cmd.Flags().Changed("prefix") {
				return usage(errors.New("NAME and --prefix exclude each other"))
			}
			if every <= 0 {
				return usage(fmt.Errorf("--every is %v, allowed is more than 0", every))
			}
			b, err := openBackend(cmd.Context(), cmd)
			if err != nil {
				return err
			}
			defer closeTelling(b.locker)
			look := func(ctx context.Context) ([]distlock.Status, error) {
				if len(args) == 0 {
					return distlock.List(ctx, b.locker, prefix)
				}
				st, err := distlock.Inspect(ctx, b.locker, args[0])
				return []distlock.Status{st}, err
			}
			show := showTable
			if asJSON {
				show = showJSON
			}
			return b.watch(cmd.Context(), cmd.OutOrStdout(), look, show, watch, every)
		},
	}
	f := cmd.Flags()
	f.StringVar(&prefix, "prefix", "", "list only names that start with `text`")
	f.BoolVar(&asJSON, "json", false, "print one JSON object per lock and line")
	f.BoolVar(&watch, "watch", false, "print again whenever something changes, until interrupted")
	f.DurationVar(&every, "every", time.Second, "how often --watch looks")
	addBackendFlags(cmd)
	return cmd
}

type shower func(io.Writer, []distlock.Status) error

// watch shows what look returns, once, or whenever it has changed.
func (b *backend) watch(ctx context.Context, w io.Writer, look func(context.Context) ([]distlock.Status, error),
	show shower, watch bool, every time.Duration) error {
	last := ""
	for {
		sts, err := look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, distlock.ErrInvalid):
			return usage(err)
		case err != nil:
			return b.failed(err)
		}
		if now := essence(sts); !watch || now != last {
			if watch {
				fmt.Fprintf(w, "-- %s\n", time.Now().Format(time.TimeOnly))
			}
			if err := show(w, sts); err != nil {
				return err
			}
			last = now
		}
		if !watch {
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
	enc := json.NewEncoder(w)
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

func breakCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "break [flags] NAME",
		Short: "Take a lock away from its holder",
		Long: `Break ends the hold on NAME, whoever has it. The holder is told within a third of its
TTL, and its token is out of date from then on; but until it is told it works on, so
break a lock only if its writes are fenced or you know that it does no harm.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := openBackend(cmd.Context(), cmd)
			if err != nil {
				return err
			}
			defer closeTelling(b.locker)
			return b.breakLock(cmd, args[0], yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	addBackendFlags(cmd)
	return cmd
}

func (b *backend) breakLock(cmd *cobra.Command, name string, yes bool) error {
	st, err := distlock.Inspect(cmd.Context(), b.locker, name)
	switch {
	case errors.Is(err, distlock.ErrInvalid):
		return usage(err)
	case err != nil:
		return b.failed(err)
	case !st.Held:
		return &exit{status: statusBusy, err: fmt.Errorf("nobody holds %q", name)}
	}
	if !yes {
		ok, err := confirm(cmd.Context(), cmd.InOrStdin(), fmt.Sprintf("break %q, held by %s, token %d?", name, printable(st.Holder), st.Token))
		if err != nil {
			return err
		}
		if !ok {
			return &exit{status: statusBusy, err: errors.New("not broken")}
		}
	}
	err = distlock.Break(cmd.Context(), b.locker, name)
	switch {
	case errors.Is(err, distlock.ErrLost):
		return &exit{status: statusBusy, err: fmt.Errorf("nobody holds %q any more", name)}
	case err != nil:
		return b.failed(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "broken: %s, was held by %s, token %d\n", printable(name), printable(st.Holder), st.Token)
	return err
}

// confirm asks at the terminal. Without one there is nobody to ask.
func confirm(ctx context.Context, in io.Reader, question string) (bool, error) {
	if f, ok := in.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return false, usage(errors.New("not at a terminal: pass --yes to break without being asked"))
	}
	fmt.Fprintf(os.Stderr, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // which Ctrl-C leaves behind: a terminal cannot be told to stop reading
		line, _ := bufio.NewReader(in).ReadString('\n') // no answer is no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case a := <-answer:
		return a == "y" || a == "yes", nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
