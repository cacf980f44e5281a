package mutants_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/internal/mutants"
)

var update = flag.Bool("update", false, "write docs/reports/mutants.md anew, and add to testdata/trips.txt")

const page = "../../docs/reports/mutants.md"

// TestPage: the page says what the tables say. TestMatrix holds those against the
// suite. "go generate" writes it.
func TestPage(t *testing.T) {
	want := render()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the tables of mutants say (%v): run go generate ./internal/mutants", page, err)
	}
}

// byChance has the mandatory checks that no mutant must fail, and why. All of them do
// catch mutants, as TestMatrix demands; but not for certain the same ones.
var byChance = map[string]string{
	"renew/boundary":          "which schedules it meets is a matter of chance; what it looks for is renew/late-request's by design",
	"stress/counter":          "it looks for overlaps by chance; core/exclusive and its kind make them by design",
	"pair/herd-try":           "it meets by chance what the other checks of the group make for certain",
	"pair/herd-lock":          "it meets by chance what the other checks of the group make for certain",
	"pair/herd-processes":     "it meets by chance what the other checks of the group make for certain",
	"pair/stopped-process":    "it meets by chance what the other checks of the group make for certain",
	"stress/random-history":   "it looks for overlaps by chance",
	"stress/boundary-history": "it looks for overlaps by chance; pair/unlock and renew/late-request make what it meets at the end of a lease",
	"stress/sequence":         "it looks for overlaps by chance",
	"fair/within-client":      "the engine keeps this order; a driver breaks it only with other things that go wrong",
}

// TestDesignated: every mandatory check is the one that must catch some mutant, or the
// reason why none is given to it is known.
func TestDesignated(t *testing.T) {
	for _, k := range conformance.Checks() {
		must := onServersKills(k.ID) || slices.ContainsFunc(append(mutants.All(), mutants.Generated()...), func(m mutants.Mutant) bool { return mustFail(m, k.ID) })
		if _, excused := byChance[k.ID]; k.Mandatory && must == excused || excused && !k.Mandatory {
			t.Errorf("%s: must it catch a mutant (%v), and has it an excuse (%v)? It needs one of both", k.ID, must, excused)
		}
	}
}

// TestTables: the tables are complete, and name checks that exist.
func TestTables(t *testing.T) {
	var ids []string
	mandatory := make(map[string]bool)
	for _, k := range conformance.Checks() {
		ids = append(ids, k.ID)
		mandatory[k.ID] = k.Mandatory
	}
	seen := make(map[string]bool)
	for _, m := range mutants.All() {
		if seen[m.Name] || m.Flaw == "" || len(m.KilledBy) == 0 {
			t.Errorf("%s is there twice, or has no flaw, or no killer", m.Name)
		}
		seen[m.Name] = true
		for _, kill := range m.KilledBy {
			if !slices.Contains(ids, kill.Check) || kill.Says == "" {
				t.Errorf("%s: %+v is no check with a message", m.Name, kill)
			}
		}
	}
	for name, patterns := range readTrips(t).byName {
		for _, pattern := range patterns {
			if !seen[name] || !slices.ContainsFunc(ids, func(id string) bool { return mandatory[id] && match(id, []string{pattern}) }) {
				t.Errorf("%s: %s is no mutant, or %q stands for no mandatory check", tripsFile, name, pattern)
			}
		}
	}
}

func render() string {
	var b strings.Builder
	all := mutants.All()
	fmt.Fprintf(&b, `# The mutants

<!-- Generated from the tables in package internal/mutants by go generate. Do not edit. -->

A suite that tests drivers has to be tested itself. Each of these %d drivers makes one wrong decision. %d more are unusual, but right. The test of package
[internal/mutants](../../internal/mutants) runs the suite against all of them, in virtual time. Every mutant must fail each check in its row, with a
message that tells its flaw. The unusual drivers must fail none.

    go test ./internal/mutants                                       # each mutant by its killers
    make matrix                                                      # each mutant by the whole suite
    go test -v -run 'TestMatrix/mutants/^NoTTL$' ./internal/mutants  # one of them
    make tolerated                                                   # the unusual drivers 20 times: -race, one processor, two busy loops

| Name | Flaw | Killed by |
|---|---|---|
`, len(all), len(mutants.AllTolerated()))
	for _, m := range all {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.Name, cell(m.Flaw), killersOf(m))
	}
	fmt.Fprintf(&b, "\n## Generated\n\n%d more go wrong in one way on one occasion, such as \"%s\"; `TestGenerated` has each fail the check of what it breaks.\n",
		len(mutants.Generated()), mutants.Generated()[0].Flaw)
	renderOnServers(&b)
	renderByChance(&b)
	renderRecord(&b, all)
	b.WriteString("\n## Unusual, but right\n\n| Driver | What is unusual about it |\n|---|---|\n")
	for _, o := range mutants.AllTolerated() {
		fmt.Fprintf(&b, "| %s | %s |\n", o.Name, cell(o.Unusual))
	}
	return b.String()
}

// renderByChance lists the checks that no mutant must fail.
func renderByChance(b *strings.Builder) {
	b.WriteString("\n## Checks that no mutant must fail\n\nThey catch mutants too, but not for certain the same ones.\n\n| Check | Why |\n|---|---|\n")
	for _, id := range slices.Sorted(maps.Keys(byChance)) {
		fmt.Fprintf(b, "| `%s` | %s |\n", id, byChance[id])
	}
}

// renderRecord lists what real software has shipped with.
func renderRecord(b *strings.Builder, all []mutants.Mutant) {
	b.WriteString("\n## Seen in real software\n\n| Bug | Mutant that stands for it |\n|---|---|\n")
	for _, m := range all {
		if m.Seen != "" {
			fmt.Fprintf(b, "| %s | %s |\n", cell(m.Seen), m.Name)
		}
	}
}

// onServers has the mutants that need real servers or processes. They are where those
// are, and their tests demand the same: that the check fails, and says why.
var onServers = []struct{ name, flaw, check, file, command string }{
	{
		"PlainSetNX", "the lock of the tutorials, SET NX PX and scripts that compare the owner, on a Redis with a replica: the primary dies before the replica has the lock, and the name is granted twice",
		"fault/failover", "redislock/failover_test.go", "go test -v -run 'TestFailover/PlainSetNX' ./redislock",
	},
	{
		"InProcess", "a mutex in the memory of the process, taken for a lock between processes",
		"core/cross-process", "internal/mutants/processes/processes_test.go", "go test -v -run 'TestProcesses/InProcess' ./internal/mutants/processes",
	},
	{
		"MutexOnly", "files that are read and written under a mutex of the process, which nothing keeps apart from those of another",
		"pair/processes", "internal/mutants/stores/stores_test.go", "go test -v -run TestMutexOnly ./internal/mutants/stores",
	},
	{
		"PidFile", "a lock file that is created if it is not there, and stays behind when its process is killed",
		"expiry/killed-holder", "internal/mutants/processes/processes_test.go", "go test -v -run 'TestProcesses/PidFile' ./internal/mutants/processes",
	},
	{
		"WallClock", "a Deadline that is made of a date, and so moves when the clock of the holder's machine is set",
		"core/acquire-release", "internal/mutants/processes/processes_test.go", "go test -v -run 'TestProcesses/WallClock' ./internal/mutants/processes",
	},
	{
		"hand-over", "a driver over Redis, MySQL, etcd or files that looks who waits with one request and hands the name over with a second; one of nine operations that are done so there",
		"pair/hand-over", "internal/mutants/stores/driver_test.go", "make look-then-act",
	},
}

func onServersKills(check string) bool {
	for _, m := range onServers {
		if m.check == check {
			return true
		}
	}
	return false
}

// TestOnServers: they are where the page says.
func TestOnServers(t *testing.T) {
	for _, m := range onServers {
		text, err := os.ReadFile("../../" + m.file)
		if err != nil || !strings.Contains(string(text), `"`+m.name+`"`) || !strings.Contains(string(text), `"`+m.check+`"`) {
			t.Errorf("%s and %s are not in %s (%v)", m.name, m.check, m.file, err)
		}
	}
}

func renderOnServers(b *strings.Builder) {
	b.WriteString("\n## On real servers and processes\n\n| Name | Flaw | Killed by | Runs in |\n|---|---|---|---|\n")
	for _, m := range onServers {
		fmt.Fprintf(b, "| %s | %s | `%s` | [%s](../../%s): `%s` |\n", m.name, cell(m.flaw), m.check, m.file, m.file, m.command)
	}
}

func killersOf(m mutants.Mutant) string {
	var texts []string
	for _, k := range m.KilledBy {
		texts = append(texts, "`"+k.Check+"`")
	}
	return strings.Join(texts, ", ")
}

// cell makes a text fit into a cell of a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
