// Command distlock works with distributed locks from the shell. See distlock --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
)

func main() {
	// go-redis writes to standard error what its callers are told anyway.
	redis.SetLogger(&logging.VoidLogger{})
	if status, child := isChild(); child {
		os.Exit(status)
	}
	ctx, signals := interruptible(context.Background())
	err := root(signals).ExecuteContext(ctx)
	e := exitOf(err)
	if signals.ended() && errors.Is(err, context.Canceled) {
		e = signals.exit()
	}
	if e.err != nil {
		say("%v", e.err)
	}
	if e.interrupted {
		dieOfInterrupt(e.group)
	}
	os.Exit(e.status)
}

func root(signals *interrupts) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "distlock",
		Short:         "Distributed locks on Redis, MySQL, Postgres, ZooKeeper and etcd",
		Long:          "Distributed locks on Redis, MySQL, Postgres, ZooKeeper and etcd, for scripts, cron and operators.",
		Version:       version(),
		SilenceErrors: true, // main prints them, once
		SilenceUsage:  true, // an error of a backend is no reason to print the flags
		Args:          noCommand,
		RunE:          showHelp,
	}
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.SetVersionTemplate("distlock {{.Version}}\n")
	cmd.Flags().Bool("version", false, "print the version") // cobra's own takes -v, elsewhere short for --verbose
	cmd.SetHelpCommand(helpCommand())
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(withHelp(cmd, ofFlag(cmd, err))) })
	cmd.AddCommand(runCommand(signals), inspectCommand(), breakCommand(), checkCommand(), compareCommand(signals), holderCommand(), versionCommand())
	cmd.AddCommand(topics()...)
	cmd.InitDefaultCompletionCmd()
	if c, _, err := cmd.Find([]string{"completion"}); err == nil { // by itself it prints its help for a shell that it does not know
		c.Args, c.RunE = noCommand, showHelp
	}
	wrapArgs(cmd)
	return cmd
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// noCommand refuses what is no command, and says what may have been meant.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		return fmt.Errorf("unknown command %q (did you mean %s?)", args[0], strings.Join(meant, " or "))
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// atMostOne refuses more than one argument.
func atMostOne(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("one %s is allowed, here are %d", what, len(args))
		}
		return nil
	}
}

// ofFlag adds to the error of a flag what is allowed, where that is less than any text, or what may have been meant.
func ofFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if meant := openurl.Nearest(unknown.GetSpecifiedName(), names); len(meant) > 0 {
			return fmt.Errorf("%w (did you mean --%s?)", err, strings.Join(meant, " or --"))
		}
		return err
	}
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	var allowed string
	switch invalid.GetFlag().Value.Type() {
	case "duration":
		allowed = `a duration like "30s" or "1m30s"` + longest(invalid.GetFlag())
	case "bool":
		allowed = "true or false"
	case "int", "int64", "uint64":
		allowed = "a whole number"
	case "float64":
		allowed = "a number"
	default:
		return err
	}
	return fmt.Errorf("--%s is %q, allowed is %s", invalid.GetFlag().Name, invalid.GetValue(), allowed)
}

// longest words the longest duration that a flag takes; usages that say it say also the shortest.
func longest(f *pflag.Flag) string {
	switch between := between.FindStringSubmatch(f.Usage); {
	case between != nil:
		return ", " + between[1]
	case f.Name == "ttl":
		return ", up to " + openurl.Short(distlock.MaxTTL)
	}
	return ""
}

// between finds the bounds at the end of a usage.
var between = regexp.MustCompile(`; (\w+ to \w+)$`)

// wrapArgs gives errors about arguments the exit status for usage.
func wrapArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usage(withHelp(cmd, err))
			}
			return nil
		}
	}
	for _, c := range cmd.Commands() {
		wrapArgs(c)
	}
}

func withHelp(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}
