package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/distlock-go/distlock"
)

// completeTime bounds what the shell waits for when it completes a name.
const completeTime = 2 * time.Second

// completeNames completes the first argument with the names held now. If the backend
// does not answer, it completes nothing: the shell has no place for errors.
func completeNames(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeTime)
	defer cancel()
	b, err := openBackend(ctx, cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer closeWithin(b.locker, time.Second)
	held, err := distlock.List(ctx, b.locker, typed)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for _, st := range held {
		// The name goes back into a command line: one with control characters does not.
		if printable(st.Name) == st.Name {
			names = append(names, cobra.CompletionWithDesc(st.Name, printable(st.Holder)))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeWords completes the value of a flag that takes one of a few words, or, if
// it is a list, several of them.
func completeWords(cmd *cobra.Command, flag string, list bool, words ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if !list {
			return words, cobra.ShellCompDirectiveNoFileComp
		}
		before := typed[:strings.LastIndex(typed, ",")+1]
		var whole []string
		for _, w := range words {
			if !slices.Contains(strings.Split(before, ","), w) {
				whole = append(whole, before+w)
			}
		}
		return whole, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
	if err != nil {
		panic(err) // the flag does not exist: a mistake in this program
	}
}

// helpCommand is cobra's, but fails for a topic that does not exist.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		Args:  cobra.ArbitraryArgs,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var names []cobra.Completion
			for _, c := range cmd.Root().Commands() {
				if len(args) == 0 && (c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand()) && strings.HasPrefix(c.Name(), typed) {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || found == nil || len(rest) > 0 {
				return usage(withHelp(cmd.Root(), fmt.Errorf("no help for %q: there is no such command", strings.Join(args, " "))))
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}
