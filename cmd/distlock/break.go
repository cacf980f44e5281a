package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/distlock-go/distlock"
)

func breakCommand() *cobra.Command {
	var yes bool
	var token int64
	var t timeout
	cmd := &cobra.Command{
		Use:   "break [flags] NAME",
		Short: "Take a lock away from its holder",
		Long: `Break shows who holds NAME, asks, and ends that hold, or nothing: if it has ended
meanwhile, and the name is another's by now, nobody loses it, and the exit status is 1.
So it is if the answer is not yes.
With --token it ends the hold with that token, which inspect shows.

The holder is told within a third of its TTL, and its token is out of date from then on;
but until it is told it works on, so break a lock only if its writes are fenced or you
know that it does no harm.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("one NAME is needed, here are %d", len(args))
			}
			return nil
		},
		ValidArgsFunction: completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed("token")
			if given && token <= 0 {
				return usage(fmt.Errorf("--token is %d, allowed is more than 0, as inspect shows it", token))
			}
			if err := t.check(); err != nil {
				return usage(err)
			}
			b, err := t.open(cmd)
			if err != nil {
				return err
			}
			defer closeTelling(b.locker)
			if given {
				return b.breakHold(cmd, t, args[0], token, "")
			}
			return b.breakSeen(cmd, t, args[0], yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().Int64Var(&token, "token", 0, "end the hold that has this `token`, without looking or asking")
	t.add(cmd, "how long the backend may take to connect, and how long for each step")
	addBackendFlags(cmd)
	return cmd
}

// breakSeen looks up the holder of the name, asks, and ends the hold that it has shown.
func (b *backend) breakSeen(cmd *cobra.Command, t timeout, name string, yes bool) error {
	st, err := b.status(cmd.Context(), t, name)
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
			return &exit{status: statusBusy, err: errors.New("not broken: the answer was not yes")}
		}
	}
	return b.breakHold(cmd, t, name, st.Token, fmt.Sprintf(" which was held by %s,", printable(st.Holder)))
}

// breakHold ends the hold with this token, or names the present holder instead. seen is
// what is known of the holder.
func (b *backend) breakHold(cmd *cobra.Command, t timeout, name string, token int64, seen string) error {
	err := t.bound(cmd.Context(), func(ctx context.Context) error {
		err := distlock.Break(ctx, b.locker, name, token)
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("%w; the hold may have ended all the same: distlock inspect shows it", err)
		}
		return err
	})
	switch {
	case err != nil && cmd.Context().Err() != nil: // a signal: the process ends by it, and says nothing more
		say("%v", err)
		return err
	case errors.Is(err, distlock.ErrLost):
		return &exit{status: statusBusy, err: b.notBroken(cmd.Context(), t, name, token)}
	case errors.Is(err, distlock.ErrInvalid):
		return usage(err)
	case err != nil:
		return b.failed(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "broke %q,%s token %d\n", name, seen, token)
	return err
}

// notBroken says what has become of a name after its hold was gone.
func (b *backend) notBroken(ctx context.Context, t timeout, name string, token int64) error {
	st, err := b.status(ctx, t, name)
	switch {
	case err != nil:
		return fmt.Errorf("not broken: nobody holds %q with token %d", name, token)
	case !st.Held:
		return fmt.Errorf("not broken: nobody holds %q", name)
	}
	return fmt.Errorf("not broken: %q is another's by now: held by %s, token %d", name, printable(st.Holder), st.Token)
}

// status asks for the status of a name, for as long as --timeout allows.
func (b *backend) status(ctx context.Context, t timeout, name string) (st distlock.Status, err error) {
	err = t.bound(ctx, func(ctx context.Context) error {
		st, err = distlock.Inspect(ctx, b.locker, name)
		return err
	})
	return st, err
}

// confirm asks at the terminal. Without one there is nobody to ask.
func confirm(ctx context.Context, in io.Reader, question string) (bool, error) {
	if f, ok := in.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return false, usage(errors.New("not at a terminal: pass --yes to break without being asked"))
	}
	fmt.Fprintf(stderr, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // Ctrl-C leaves it behind: a terminal cannot be told to stop reading
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
