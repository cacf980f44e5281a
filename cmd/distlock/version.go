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
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "distlock", version())
			return err
		},
	}
}

func version() string {
	return fmt.Sprintf("%s %s %s/%s", compare.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
