package result

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/internal/servers"
)

func example() *Results {
	redis := one("solo", Rate, map[string][]float64{
		peers.Distlock: {9000, 11000, 10000}, bsm: {10000, 10000, 10000}, bareRedis: {20000, 20000, 20000}})
	redis.Server = "7.2, local process redis-server"
	row := redis.Rows[0]
	row.Title, row.Taken, row.Commit = "one client", time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC), "abc"
	row.Failed[rueidis] = "it hung\nfor ever"
	return &Results{
		Schema: Schema, Machine: Machine{OS: "linux", Arch: "amd64", Go: "go1.26", CPU: "a CPU", CPUs: 2},
		Versions: map[string]string{"github.com/bsm/redislock": "v1.2.3"},
		Backends: map[servers.Kind]*Backend{servers.Redis: redis},
	}
}

func render(t *testing.T, r *Results, misses string) string {
	t.Helper()
	var b strings.Builder
	if err := Page(&b, r, misses); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPage(t *testing.T) {
	page := render(t, example(), "Because.\n")
	for _, want := range []string{
		"Taken 2026-11-21, at least 3 rounds of what is timed, on linux/amd64 with 2 processors (a CPU), go1.26. distlock is at commit abc",
		"| solo, by the best peer | met<br>1.00 (0.900–1.10), goal ≥ 1 × bsm/redislock | **not measured**",
		"| solo, by the bare commands | **missed**<br>0.500 (0.450–0.550), goal ≥ 0.9 × bare SET NX PX + EVALSHA ✗ |",
		"1 goals met, 1 missed, 38 not measured.",
		"## Why goals were missed\n\nBecause.\n\n",
		"Server: 7.2, local process redis-server.",
		"| one client | lock+unlock/s | client CPU µs each | server CPU µs each | distlock ÷ this |\n|---|--:|--:|--:|--:|\n| distlock | 10,000 ±10% | – | – |  |\n| bsm/redislock | 10,000 ±0% | – | – | 1.00 (0.900–1.10) |\n",
		"| rueidislock | – | – | – | – |\n",
		"rueidislock failed in a round: it hung for ever.",
		"- **bsm/redislock** (github.com/bsm/redislock v1.2.3): ",
		"do not wait for fsync",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if strings.Contains(page, "## MySQL") {
		t.Error("the page has a chapter on what was not measured")
	}
	if t.Failed() {
		t.Log(page)
	}
}

// A reader must be told when not all is of the same code, and only then.
func TestPageTellsOfPieces(t *testing.T) {
	r := example()
	on := r.Backends[servers.Redis]
	on.Put(&Row{ID: "hot2", Title: "2 clients", Taken: on.Rows[0].Taken.Add(time.Hour), Commit: "abc"})
	if page := render(t, r, ""); !strings.Contains(page, "distlock is at commit abc.") || strings.Contains(page, "in pieces") || strings.Contains(page, ", at commit") {
		t.Errorf("of one commit the page begins\n%.800s", page)
	}
	on.Row("hot2").Commit = "def+"
	page := render(t, r, "")
	for _, want := range []string{"measured in pieces", "Taken 2026-11-21 20:00:00, at commit abc.", "Taken 2026-11-21 21:00:00, at commit def+."} {
		if !strings.Contains(page, want) {
			t.Errorf("of two commits the page does not have %q", want)
		}
	}
	if strings.Contains(page, "distlock is at commit") {
		t.Error("of two commits the page names one for all")
	}
}

// Where the time goes: shares of what a pair costs in the timed rounds.
func TestPageShowsProfiles(t *testing.T) {
	r := example()
	row := r.Backends[servers.Redis].Rows[0]
	for i := range row.Rounds {
		row.Rounds[i][peers.Distlock][Work] = 80
	}
	row.Profiles = map[string]*Profile{
		peers.Distlock: {Samples: 200, Spent: map[Bucket]int64{SystemCalls: 50, Scheduler: 100, Portable: 50}},
		bsm:            {Samples: 10, Spent: map[Bucket]int64{Library: 10}},
	}
	page := render(t, r, "")
	for _, want := range []string{
		"### Where the client's process spends its time\n\n| | samples | client CPU µs each | system calls | scheduler | memory | client library | driver | portable half | rest |\n",
		"| one client: distlock | 200 | 80.0 | 20.0 (25%) | 40.0 (50%) | 0 | 0 | 0 | 20.0 (25%) | 0 |\n",
		"| one client: bsm/redislock | 10 | – | 0 | 0 | 0 | 100% | 0 | 0 | 0 |\n", // what a pair costs is not known
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if page := render(t, example(), ""); strings.Contains(page, "spends its time") {
		t.Error("the page shows profiles that were not taken")
	}
}

func TestPageShowsHeap(t *testing.T) {
	on := one(heldRow, Bytes, map[string][]float64{peers.Distlock: {kib}})
	row := on.Rows[0]
	if row.HeapMissed() {
		t.Error("just a KiB misses the goal")
	}
	row.Rounds[0][peers.Distlock][Bytes] = kib + 1
	if !row.HeapMissed() {
		t.Error("more than a KiB does not miss the goal")
	}
	row.Title, row.Heap = "10,000 locks held", []Site{{"zk.watch", 300}, {"zklock.New", 200}}
	r := example()
	r.Backends[servers.ZooKeeper] = on
	want := "### Where the memory of distlock goes, 10,000 locks held\n\n| allocated by | bytes in use for each |\n|---|--:|\n" +
		"| `zk.watch` | 300 |\n| `zklock.New` | 200 |\n| together | 500 |\n"
	if page := render(t, r, ""); !strings.Contains(page, want) {
		t.Errorf("the page does not have %q", want)
	}
}

// A reader must be told when the figures were taken beside other work.
func TestPageTellsOfLoad(t *testing.T) {
	r := example()
	row := r.Backends[servers.Redis].Rows[0]
	for load, told := range map[float64]bool{0: false, 3.9: false, 12.4: true} {
		row.Load = load
		if page := render(t, r, ""); strings.Contains(page, "busy with other work**, with a load of up to 12") != told {
			t.Errorf("with a load of %v the page begins\n%.800s", load, page)
		}
	}
}

// What explains misses has no place where there are none.
func TestPageWithoutMisses(t *testing.T) {
	r := example()
	r.Backends[servers.Redis].Rows[0].ID = "hot2" // no goal is about it
	if page := render(t, r, "Because."); strings.Contains(page, "Because") {
		t.Error("the page explains misses that are not there")
	}
}

func TestSummary(t *testing.T) {
	r := example()
	text := Summary(servers.Redis, r.Backends[servers.Redis].Rows[0])
	for _, want := range []string{"distlock", "10,000 ±10%", "1.00 (0.900–1.10)", "rueidislock failed: it hung"} {
		if !strings.Contains(text, want) {
			t.Errorf("the summary does not have %q:\n%s", want, text)
		}
	}
}

func TestSaveAndOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	r, err := Open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	r.Backends[servers.Redis] = example().Backends[servers.Redis]
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := render(t, again, ""), render(t, r, ""); got != want {
		t.Errorf("the page has changed by saving and reading:\n%s\nwas\n%s", got, want)
	}
	// A row that is measured again takes the place of the old one, and others stay.
	on := again.Backends[servers.Redis]
	on.Put(&Row{ID: "hot2"})
	on.Put(&Row{ID: "solo", Title: "new"})
	if len(on.Rows) != 2 || on.Row("solo").Title != "new" || on.Row("hot2") == nil {
		t.Errorf("the rows are %v", on.Rows)
	}
	if fresh, err := Open(path, true); err != nil || len(fresh.Backends) != 0 {
		t.Errorf("afresh there are %d backends, error %v", len(fresh.Backends), err)
	}
	again.Machine.CPUs++
	if err := again.Save(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, false); err == nil {
		t.Error("figures of another machine can be added to")
	}
	now := &Results{Machine: again.Machine, Versions: map[string]string{"a": "1"}}
	for version, want := range map[string]bool{"1": true, "2": false, "": false} {
		older := &Results{Machine: again.Machine, Versions: map[string]string{"a": version, "b": "3"}}
		if older.fits(now) != want {
			t.Errorf("figures of version %q of a library fit version 1: %v", version, !want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":        "{",
		"another schema": `{"schema": 999}`,
	} {
		path := filepath.Join(t.TempDir(), "r.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil {
			t.Errorf("%s is read without an error", name)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there is read without an error")
	}
}
