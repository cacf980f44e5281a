package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUpToMake: what a recipe of make starts finds it, over a shell.
func TestUpToMake(t *testing.T) {
	const under = "RUNTESTS_UNDER_MAKE"
	if os.Getenv(under) != "" {
		chain := upToMake()
		fmt.Println("found", len(chain))
		return
	}
	file := filepath.Join(t.TempDir(), "Makefile")
	recipe := fmt.Sprintf("x:\n\t@%s=1 '%s' -test.run '^TestUpToMake$$' -test.v; true\n", under, os.Args[0])
	if err := os.WriteFile(file, []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "make", "-f", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "found 2") {
		t.Errorf("%v: %s", err, out)
	}
}
