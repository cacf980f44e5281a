package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/chaos"
	"github.com/distlock-go/distlock/internal/servers"
)

// faultTime bounds one command that breaks or mends.
const faultTime = time.Minute

// faultCommands is one entry of the file of --faults.
type faultCommands struct {
	Name  string `yaml:"name"`
	Break string `yaml:"break"`
	Mend  string `yaml:"mend"`
}

// readFaults reads the file of --faults. A fault that cannot be mended is refused before
// anything is broken.
func (o *checkOptions) readFaults(cmd *cobra.Command) error {
	switch {
	case o.chaos < 0:
		return fmt.Errorf("--chaos is %v, allowed is more than 0", o.chaos)
	case o.chaos == 0 && (o.faultFile != "" || cmd.Flags().Changed("seed")):
		return errors.New("--faults and --seed are for --chaos")
	case o.chaos == 0:
		return nil
	case o.soak > 0 || o.quick || o.strict || o.run != "" || o.json != "" || o.junit != "" || o.artifacts != "" || cmd.Flags().Changed("parallel"):
		return errors.New("--chaos does not run the suite: it excludes --quick, --soak, --strict, --run, --parallel, --json, --junit and --artifacts")
	case o.faultFile == "":
		return errors.New("--chaos needs --faults, a file that says how to break the store and how to mend it")
	}
	text, err := os.ReadFile(o.faultFile)
	if err != nil {
		return fmt.Errorf("--faults: %w", err)
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&o.faults); err != nil {
		line := yamlLine.FindString(err.Error()) // and no more: the file may be another than was meant
		if line != "" {
			line = ", wrong in" + line
		}
		return fmt.Errorf("--faults %s is not a YAML list of faults, each with name, break and mend%s; see distlock help chaos", o.faultFile, line)
	}
	if err := oneDocument(text); err != nil {
		return fmt.Errorf("--faults %s%w", o.faultFile, err)
	}
	if len(o.faults) == 0 {
		return fmt.Errorf("--faults %s: it has no faults", o.faultFile)
	}
	for i, f := range o.faults {
		if f.Name == "" || f.Break == "" || f.Mend == "" {
			return fmt.Errorf("--faults %s: fault %d: name, break and mend are needed", o.faultFile, i+1)
		}
	}
	return nil
}

// breakIt locks while the store is broken and mended, and says what has happened.
func (o *checkOptions) breakIt(cmd *cobra.Command, config backends.Config, b *backend) error {
	caps, ok := b.locker.(interface{ Capabilities() driver.Capabilities })
	if !ok {
		return usage(errors.New("--chaos: the backend does not say what it promises"))
	}
	c := caps.Capabilities()
	s := chaos.Subject{
		Name:        b.url,
		Exclusive:   c.Durability == driver.Quorum,
		Lag:         c.ExpiryLag,
		Granularity: c.TTLGranularity,
		Open: func(ctx context.Context, _ int) (distlock.Locker, error) {
			return config.Open(ctx)
		},
	}
	for _, f := range o.faults {
		s.Faults = append(s.Faults, chaos.Fault{Name: f.Name, Break: shell(f.Break), Mend: shell(f.Mend)})
	}
	result, err := chaos.Run(cmd.Context(), s, chaos.Params{
		Seed: o.seed, Events: 1, For: o.chaos, Clients: 4, Names: 3, // without a fault it would say nothing
		TTL: max(2*time.Second, c.MinTTL), Gap: time.Second, Length: 2 * time.Second,
		Log: func(text string) { say("%s", text) },
	})
	if err != nil {
		return err
	}
	return o.judged(cmd, result)
}

// judged prints the result, and fails if the contract was broken.
func (o *checkOptions) judged(cmd *cobra.Command, r *chaos.Result) error {
	w := cmd.OutOrStdout()
	for _, name := range slices.Sorted(maps.Keys(r.Events)) {
		fmt.Fprintf(w, "%4d × %s\n", r.Events[name], name)
	}
	fmt.Fprintf(w, "%d locks granted, %d holders told of a loss, %d stale writes refused by their token; after a fault the next grant took %v at the most\n",
		r.Grants, r.Lost, r.Stale, r.Longest.Round(time.Millisecond))
	if !r.Exclusive {
		fmt.Fprintf(w, "two holders at a time: %d (this store may forget what it has granted)\n", r.Overlaps)
	}
	for _, f := range r.Findings {
		fmt.Fprintln(w, "BROKEN:", f)
	}
	if len(r.Findings) > 0 {
		return &exit{status: statusBusy, err: fmt.Errorf("%s: the contract was broken %d times; repeat it with --seed %d", r.Subject, len(r.Findings), r.Seed)}
	}
	return nil
}

// shell runs a command of the user's. Its output is shown if it fails.
func shell(command string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, faultTime)
		defer cancel()
		_, err := servers.RunTool(ctx, "", "sh", "-c", command)
		if err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		return nil
	}
}
