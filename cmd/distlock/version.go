package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker where the sources are not those of a git commit,
// from which Go would take it.
var version string

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version := version
			if info, ok := debug.ReadBuildInfo(); version == "" && ok {
				version = info.Main.Version
			}
			if version == "" {
				version = "(devel)"
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "distlock %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
