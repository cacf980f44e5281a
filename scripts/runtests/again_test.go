package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// late is a test program in which a test is inconclusive for as often as its file says.
const late = `package late

import (
	"os"
	"testing"
)

func Test(t *testing.T) {
	t.Run("fails", func(t *testing.T) { late(t, "fails", t.Fatalf) })
	t.Run("a check", func(t *testing.T) { late(t, "skips", t.Skipf) })
	t.Run("sure", func(t *testing.T) {})
}

func late(t *testing.T, file string, tell func(string, ...any)) {
	left, _ := os.ReadFile(file)
	if len(left) > 0 {
		os.WriteFile(file, left[1:], 0o600)
		t.Cleanup(func() { t.Log("closing: no answer") })
		tell("inconclusive: nothing more is tested: the machine was late")
	}
	if _, err := os.Stat("broken"); err == nil {
		t.Error("broken")
	}
}
`

// TestRunAgain: what was inconclusive counts by what it is when it is run once more.
func TestRunAgain(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  bool
	}{
		{"once", map[string]string{"fails": "1", "skips": "1"}, true},
		{"twice, by a failure", map[string]string{"fails": "11"}, false},
		{"twice, by a skip", map[string]string{"skips": "11"}, true},
		{"and then broken", map[string]string{"fails": "1", "broken": " "}, false},
		{"skipped, and then broken", map[string]string{"skips": "1", "broken": " "}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			files := map[string]string{"go.mod": "module example.org/late\n\ngo 1.26\n", "late_test.go": late}
			for file, text := range tc.files {
				files[file] = text
			}
			for file, text := range files {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder // not the standard output, in which the run that this is a part of looks for tests that failed
			ok, err := runAll(t.Context(), options{goCommand: "go", side: 1, parallel: 1, timeout: time.Minute, out: &out})
			if err != nil || ok != tc.want {
				t.Errorf("got %v, %v, want %v: %q", ok, err, tc.want, out.String())
			}
		})
	}
}

// TestJudge: a test is run again only if its last words, and nothing else, are the reason why it failed.
func TestJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		text          string
		tests, unsure string
		skipped       int
	}{
		"a check of the suite": {"=== RUN   T/a/b\n    run.go:43: inconclusive: a/b\n        rule: x\n    --- SKIP: T/a/b (0.00s)\n--- PASS: T (1s)\n", "", "T/a/b", 0},
		"no server":            {"=== RUN   T\n    x_test.go:1: no server\n--- SKIP: T (0.00s)\n", "", "", 1},
		"late":                 {"=== RUN   T\n    x_test.go:9: it took\n    x_test.go:9: inconclusive: late\n--- FAIL: T (1s)\n", "T", "T", 0},
		"late, and then wrong": {"=== RUN   T\n    x_test.go:9: inconclusive: late\n    x_test.go:20: wrong\n--- FAIL: T (1s)\n", "T", "", 0},
		"within another":       {"=== RUN   T\n=== RUN   T/a\n    x_test.go:9: inconclusive: late\n--- FAIL: T (1s)\n    --- FAIL: T/a (1s)\n", "T/a", "T/a", 0},
		"within a wrong one":   {"=== RUN   T\n=== RUN   T/a\n    x_test.go:9: inconclusive: late\n=== NAME  T\n    x_test.go:3: wrong\n--- FAIL: T (1s)\n    --- FAIL: T/a (1s)\n", "T/a", "", 0},
		"a race beside it":     {"WARNING: DATA RACE\n=== RUN   T\n    x_test.go:9: inconclusive: late\n--- FAIL: T (1s)\n", "T", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var r result
			r.read([]byte(tc.text), false)
			if got := strings.Join(r.tests, " "); got != tc.tests {
				t.Errorf("failed: %q, want %q", got, tc.tests)
			}
			if got := strings.Join(r.unsure, " "); got != tc.unsure || r.skipped != tc.skipped {
				t.Errorf("inconclusive: %q, want %q; %d skipped, want %d", got, tc.unsure, r.skipped, tc.skipped)
			}
			if tc.unsure != "" && !strings.Contains(string(r.output), "inconclusive: ") {
				t.Errorf("its reason is not shown: %q", r.output)
			}
		})
	}
}
