package conformance

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/distlock-go/distlock/internal/testkit"
)

var update = flag.Bool("update", false, "write docs/reports/checks.md anew")

const checksPage = "../docs/reports/checks.md"

// TestChecksPage: the page lists the checks as they are. "go generate" writes it.
func TestChecksPage(t *testing.T) {
	want := renderChecks()
	if *update {
		if err := os.WriteFile(checksPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(checksPage)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the table of checks says (%v): run go generate ./conformance", checksPage, err)
	}
}

// TestReadmeCompiles: the code of the README is that of the example.
func TestReadmeCompiles(t *testing.T) {
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Quoted(t, "README.md", 1, strings.Replace(string(example), "func testC", "func TestC", 1))
}

func renderChecks() string {
	var b strings.Builder
	checks := Checks()
	mandatory := 0
	for _, k := range checks {
		if k.Mandatory {
			mandatory++
		}
	}
	fmt.Fprintf(&b, `# The conformance checks

<!-- Generated from the table in package conformance by go generate. Do not edit. -->

%d checks, %d of them mandatory (★): a driver that does not pass those does not implement
the [contract](../contract.md). The others are skipped where a capability that they need is declared absent.
An ID is also the name of the sub-test: `+"`go test -run 'TestConformance/core/exclusive'`"+`.
A check marked "alone" disturbs the server, and runs when no other does; one marked "heavy" loads it, and runs beside one such at the most.
`, len(checks), mandatory)
	group := ""
	for _, k := range checks {
		if g := k.Group(); g != group {
			group = g
			fmt.Fprintf(&b, "\n## %s\n\n| Check | Clause | What a driver must do | Needs |\n|---|---|---|---|\n", group)
		}
		name := "`" + k.ID + "`"
		if k.Mandatory {
			name += " ★"
		}
		var needs []string
		for _, need := range k.Needs {
			needs = append(needs, string(need))
		}
		if k.Alone {
			needs = append(needs, "alone")
		}
		if k.Heavy {
			needs = append(needs, "heavy")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, k.Clause, strings.ReplaceAll(k.Rule, "|", `\|`), strings.Join(needs, ", "))
	}
	return b.String()
}
