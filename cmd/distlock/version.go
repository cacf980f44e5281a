package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/distlock-go/distlock/internal/compare"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "distlock %s %s %s/%s\n", compare.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
