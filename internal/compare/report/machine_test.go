package report

import (
	"slices"
	"strings"
	"testing"
)

func TestCommandHasNoPassword(t *testing.T) {
	got := redactCommand([]string{"/tmp/go-build/distlock", "compare", "redis://me:hunter2@h:1/0", "--json=out.json",
		"--url=mysql://u:hunter2@h/db?x=1&password=hunter2", "root:hunter2@tcp(h)/db"})
	if got[0] != "distlock" || !slices.Contains(got, "--json=out.json") || slices.ContainsFunc(got, func(arg string) bool {
		return strings.Contains(arg, "hunter2")
	}) {
		t.Errorf("the command line is %q", got)
	}
}
