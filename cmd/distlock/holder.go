package main

import (
	"context"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/compare/hazard"
)

// holderCommand is a child process of compare. compare kills or stops it.
func holderCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "holder",
		Short:  "Hold a lock for distlock compare, as told on standard input",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return hazard.HolderMain(cmd.Context(), func(ctx context.Context) (distlock.Locker, error) {
				return backends.Open(ctx, os.Getenv(backends.EnvURL)) // all that compare knows is in its URLs
			}, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// holder returns the child process that holds locks of a URL.
func holder(url string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "holder")
	// In the environment: everybody may read the arguments.
	cmd.Env = append(os.Environ(), backends.EnvURL+"="+url)
	return cmd, nil
}
