package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Every exit status that --help promises is one that a script has seen.
func TestExitStatusesAreTested(t *testing.T) {
	seen := make(map[string]bool)
	files, err := filepath.Glob("testdata/*/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	status := regexp.MustCompile(`(?:echo \$\?'.*|wait \w+)\nstdout '\^(\d+)\$'`)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range status.FindAllSubmatch(text, -1) {
			seen[string(match[1])] = true
		}
	}
	examples := map[string]string{"128+n": "143", "other": "7"}
	rows := regexp.MustCompile(`(?m)^  (\S+) `).FindAllStringSubmatch(exitHelp, -1)
	if len(rows) < 10 {
		t.Fatalf("the table of exit statuses has %d rows", len(rows))
	}
	for _, row := range rows {
		code := row[1]
		if example, ok := examples[code]; ok {
			code = example
		}
		if !seen[code] {
			t.Errorf("no script has the exit status %s", code)
		}
	}
}
