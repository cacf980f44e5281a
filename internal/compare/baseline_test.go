package compare

import (
	"strings"
	"testing"
	"time"
)

// since compares two reports that can be compared.
func since(t *testing.T, old, now *Report) *Diff {
	t.Helper()
	d, err := Since(old, now, 0.2)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSinceNothing(t *testing.T) {
	d := since(t, fixture(), fixture())
	if len(d.Changes) != 0 || d.Regressions() != 0 || len(d.Notes) != 0 || d.Unjudged != 10 || d.Judged < 35 {
		// Two figures of five backends are taken once.
		t.Errorf("between a report and itself: %+v", d)
	}
}

func TestSince(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(r *Report)
		worse  int
		want   string // in the text; "" for no change
	}{
		{"slower", func(r *Report) { r.Backends[1].Figures[SoloRate] = rounds(7000) }, 1, "redis, one after the other: 11,200/s ±1% -> 7,000/s ±1% (0.62 times)"},
		{"faster", func(r *Report) { r.Backends[1].Figures[SoloRate] = rounds(17000) }, 0, "(1.52 times)"},
		{"longer", func(r *Report) { r.Backends[4].Figures[HandOff99] = rounds(27) }, 1, "etcd, hand-off, 99 %: 2.70 ms"},
		{"shorter", func(r *Report) { r.Backends[4].Figures[HandOff99] = rounds(1) }, 0, "etcd, hand-off, 99 %"},
		{"within the tolerance", func(r *Report) { r.Backends[1].Figures[SoloRate] = rounds(9500) }, 0, ""},
		{"within the noise", func(r *Report) { r.Backends[1].Figures[SoloRate] = Series{5000, 5000, 11200} }, 0, ""},
		{"too few rounds", func(r *Report) { r.Backends[1].Figures[SoloRate] = Series{1, 1} }, 0, ""},
		{"no longer measured", func(r *Report) { delete(r.Backends[1].Figures, SoloRate) }, 1, "-> not measured"},
		{"a new figure", func(r *Report) { r.Backends[1].Figures["new_ms"] = rounds(1) }, 0, ""},
		{"worse outcome", func(r *Report) { r.Backends[2].Safety[Herd] = Outcome{Verdict: Bad, Text: "stampede"} }, 1, "mysql, herd at a release: 103 requests -> stampede"},
		{"better outcome", func(r *Report) { r.Backends[2].Safety[ServerRestart] = Outcome{Verdict: Good, Text: "kept"} }, 0, "lost, holder told -> kept"},
		{"outcome no longer measured", func(r *Report) { delete(r.Backends[2].Safety, Herd) }, 1, "103 requests -> not measured"},
		{"outcome in other words", func(r *Report) { r.Backends[2].Safety[Herd] = Outcome{Verdict: Good, Text: "few"} }, 0, ""},
		{"failed", func(r *Report) { r.Backends[2].Failed = map[string]string{"hot": "gone"} }, 1, "mysql, many clients, one name: worked -> failed: gone"},
		{"backend missing", func(r *Report) { r.Backends = r.Backends[:4] }, 1, "etcd, all: measured -> not measured"},
	} {
		now := fixture()
		tc.change(now)
		d := since(t, fixture(), now)
		changes := 1
		if tc.want == "" {
			changes = 0
		}
		if len(d.Changes) != changes || d.Regressions() != tc.worse {
			t.Errorf("%s: %d regressions in %+v", tc.name, d.Regressions(), d.Changes)
		}
		text, page := strings.Join(strings.Fields(written(t, d.WriteText)), " "), written(t, d.WriteMarkdown)
		if !strings.Contains(text, tc.want) || !strings.Contains(page, strings.ReplaceAll(tc.want, ">", "&gt;")) {
			t.Errorf("%s: not told: %s", tc.name, text)
		}
	}
}

// What changes without a lock in it is a note: it says that the machine is another.
func TestSinceNotes(t *testing.T) {
	now := fixture()
	now.Backends[1].Figures[BareRate] = rounds(5000)
	now.Backends[1].Version = "9.9"
	now.Backends[1].Origin = "given URL"
	now.Backends = append(now.Backends, &Backend{Name: "new"})
	now.Machine.CPUs, now.Interrupted = 64, true
	text := strings.Join(strings.Fields(written(t, since(t, fixture(), now).WriteText)), " ")
	for _, want := range []string{"the server is not as it was: redis, bare commands: 11,900/s ±1% -> 5,000/s", "CPUs: 2 in the baseline, 64 now",
		"version 1.2.3 in the baseline, 9.9 now", "local process redis-server in the baseline, given URL now", "new is not in the baseline",
		"this run was interrupted", "0 worse, 0 better"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
}

// A baseline that says nothing about this run is refused, with the reason.
func TestSinceRefuses(t *testing.T) {
	other := fixture()
	other.Params.Clients, other.Params.TTL = 99, time.Minute
	_, err := Since(other, fixture(), 0.2)
	if err == nil || err.Error() != "measured with other parameters: clients was 99 and is 4, ttl was 1m0s and is 20s" {
		t.Errorf("other parameters: %v", err)
	}
	old := fixture()
	old.Schema = 0
	if _, err := Since(old, fixture(), 0.2); err == nil || !strings.Contains(err.Error(), "schema 0") {
		t.Errorf("another schema: %v", err)
	}
}
