package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

const cliDoc = "../../docs/cli.md"

// TestDocs compares docs/cli.md with what --help says.
func TestDocs(t *testing.T) {
	var b bytes.Buffer
	fmt.Fprint(&b, "# The command\n\nGenerated from `distlock --help` and the like by "+
		"`go test ./cmd/distlock -run TestDocs -update`.\n")
	cmd := root(nil)
	cmd.InitDefaultHelpCmd()
	for _, c := range append([]*cobra.Command{cmd}, cmd.Commands()...) {
		if c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		c.InitDefaultHelpFlag()
		c.SetOut(&b)
		fmt.Fprintf(&b, "\n## %s\n\n```\n", c.CommandPath())
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(&b, "```\n")
	}
	if *update {
		if err := os.WriteFile(cliDoc, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(cliDoc)
	if err != nil || !bytes.Equal(page, b.Bytes()) {
		t.Errorf("%s is out of date (error %v): go test ./cmd/distlock -run TestDocs -update", cliDoc, err)
	}
}
