package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

var manFolder = flag.String("man", "", "`folder` to write manual pages into")

const cliDoc = "../../docs/cli.md"

// TestDocs compares docs/cli.md with what --help says.
func TestDocs(t *testing.T) {
	var b bytes.Buffer
	fmt.Fprint(&b, "# The command\n\nGenerated from `distlock --help` and the like by "+
		"`go test ./cmd/distlock -run TestDocs -update`.\n")
	cmd := root(nil)
	cmd.InitDefaultHelpCmd()
	for _, c := range append([]*cobra.Command{cmd}, cmd.Commands()...) {
		if c.Name() == "help" || c.Name() == "completion" || c.Hidden {
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

// TestManPages writes the manual pages, for the archives that scripts/dist makes.
func TestManPages(t *testing.T) {
	folder := *manFolder
	if folder == "" {
		folder = t.TempDir()
	}
	cmd := root(nil)
	cmd.DisableAutoGenTag = true // it has the day's date
	for _, c := range append([]*cobra.Command{cmd}, cmd.Commands()...) {
		// cobra/doc reads Markdown, and takes a table for a block of code.
		c.Long = regexp.MustCompile(`(?m)^  +\S`).ReplaceAllString(c.Long, "  $0")
	}
	if err := doc.GenManTree(cmd, &doc.GenManHeader{Section: "1", Source: "distlock", Manual: "distlock"}, folder); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(folder, "distlock-run.1"))
	if err != nil || !bytes.Contains(page, []byte("--once-per")) {
		t.Errorf("the page of run is not complete (error %v):\n%s", err, page)
	}
}
