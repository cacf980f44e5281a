package render

import (
	"math"
	"time"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// hostile is what a server or a URL may say.
const hostile = `</script><script>alert(1)</script><img src=x onerror=alert(2)>"'&` + "\x1b[31m\n`|*"

// fixture is a report with all parts, of five backends that differ in everything
// that a report can show. The figures are made up.
func fixture() *report.Report {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r := &report.Report{
		Schema: report.Schema, Started: start, Finished: start.Add(4*time.Minute + 12*time.Second),
		Command: []string{"distlock", "compare", "--html", "report.html"},
		Machine: report.Machine{OS: "linux", Arch: "amd64", Go: "go1.26.8", CPUs: 2, CPU: "Fixture 3000", Version: "(devel)"},
		Params: report.Params{Workloads: report.WorkloadIDs(), Duration: 50 * time.Millisecond, Clients: 4, Names: 4,
			Held: 8, Waiters: 5, Rate: 200},
		Missing: map[string]string{},
	}
	r.Params.Rounds, r.Params.TTL = 3, 20*time.Second
	for _, f := range []struct {
		name, url, origin            string
		bare, solo, many, hot, jain  float64
		worst, hand, tail, recover   float64
		requests, bytes, told, herd  float64
		exclusion, crash, durability string
	}{
		{"memory", "mem://compare", "in this process", 0, 812000, 905000, 640000, 0.71, 4, 0.006, 0.04, 20000, 0, 0, 200, 0,
			"a mutex", "its TTL", "volatile: nothing survives the process"},
		{"redis", "redis://127.0.0.1:40001", "local process redis-server", 11900, 11200, 46300, 5200, 1, 6.1, 0.62, 1.4, 20050, 2, 412, 6300, 2,
			"one Lua script per step", "key expiry", "volatile: a crash or failover may forget a lock"},
		{"mysql", "mysql://root@127.0.0.1:40002/distlock", "local process mariadbd", 1900, 1820, 5300, 940, 0.61, 310, 1.9, 8.8, 20110, 2, 655, 6200, 103,
			"unique index, one statement per step", "expiry column, judged by the server's clock", "restart: InnoDB log"},
		{"zk", "zk://127.0.0.1:40003", "local process zookeeper", 1210, 1100, 7600, 1010, 1, 18, 1.21, 2.6, 24000, 4, 530, 4100, 2,
			"ephemeral sequential nodes", "session timeout", "quorum"},
		{"etcd", "etcd://127.0.0.1:40004", "local process etcd", 1420, 1330, 8100, 1005, 1, 17, 1.19, 2.7, 20900, 4, 1010, 5900, 2,
			"one transaction per step", "lease", "quorum"},
	} {
		b := &report.Backend{Name: f.name, URL: f.url, Origin: f.origin, Version: "1.2.3", Figures: map[report.Figure]report.Series{
			report.SoloRate: rounds(f.solo), report.ParallelRate: rounds(f.many), report.HotRate: rounds(f.hot), report.HotJain: rounds(f.jain),
			report.HotWorst: rounds(f.worst), report.HandOff50: rounds(f.hand), report.HandOff99: rounds(f.tail),
		}}
		b.Figures[report.WaitAll], b.Figures[report.HeldBytes], b.Figures[report.HeldLost] = rounds(f.hand*200), report.Series{900 + f.hand}, report.Series{0}
		if f.bare > 0 {
			b.Figures[report.WaitRequests], b.Figures[report.FailOver] = rounds(f.herd+10), rounds(f.recover)
			b.Notes = []string{"does not wait for the disk"}
			b.Figures[report.BareRate], b.BareCommands = rounds(f.bare), "SET, DEL"
			b.Traffic = map[string]report.Traffic{"solo": {Requests: f.requests, Bytes: f.bytes}, "hot": {Requests: f.requests * 1.5, Bytes: f.bytes * 2}}
		}
		b.Facts = []report.Fact{
			{ID: "exclusion", Title: "mechanism of exclusion", Text: f.exclusion}, {ID: "crashed_holder", Title: "a crashed holder is freed by", Text: f.crash},
			{ID: "durability", Title: "locks survive", Text: f.durability}, {ID: "clock", Title: "clock assumptions", Text: "one monotonic clock; the server's own"},
			{ID: "fairness", Title: "order of service", Text: "first come, first served"},
		}
		b.Safety = map[report.Hazard]report.Outcome{
			report.DoubleGrants:    {Verdict: report.Good, Text: "none in 120,000 holds", Detail: "all workloads", Values: report.Series{0, 0, 0}, Unit: "overlaps"},
			report.KilledHolder:    {Verdict: report.Good, Text: "next after " + number(f.recover/1000) + " s", Detail: "SIGKILL of a process", Values: rounds(f.recover), Unit: "ms"},
			report.StalledHolder:   {Verdict: report.Good, Text: "told " + number(f.told/1000) + " s before", Detail: "SIGSTOP past the TTL", Values: rounds(f.told), Unit: "ms"},
			report.CutOffHolder:    {Verdict: report.Good, Text: "told " + number(f.told/1000) + " s before", Detail: "a proxy that forwards nothing", Values: rounds(f.told * 0.9), Unit: "ms"},
			report.ServerRestart:   {Verdict: report.Caution, Text: "lost, holder told", Detail: "SIGKILL and restart on the same data", Values: nil, Unit: ""},
			report.CancelledWaiter: {Verdict: report.Good, Text: "nothing left", Detail: "", Values: rounds(1), Unit: "requests"},
			report.Herd:            {Verdict: report.Good, Text: number(f.herd) + " requests", Detail: "100 waiters", Values: rounds(f.herd), Unit: "requests"},
			report.Fairness:        {Verdict: report.Good, Text: "Jain " + number(f.jain), Detail: "", Values: nil, Unit: ""},
		}
		b.Distributions = map[string]report.Distribution{"solo": spreadOut(1000 / f.solo), "handoff": spreadOut(f.hand), "hot": spreadOut(f.worst / 8)}
		b.Curves = map[string]report.Curve{
			"hot_by_clients": {X: "clients on one name", Y: "lock+unlock per second",
				Points: points(2, f.hot*1.1, 8, f.hot, 32, f.hot*0.95, 128, f.hot*0.8)},
			"held_memory": {X: "locks held", Y: "bytes a lock", Points: points(100, 900, 1000, 700+f.hand*10, 10000, 690)},
		}
		r.Backends = append(r.Backends, b)
	}
	r.Backends[0].Unmeasured = map[string]string{"failover": "the store is in this process"}
	mem := r.Backends[0].Safety
	for _, h := range []report.Hazard{report.CutOffHolder, report.ServerRestart} {
		mem[h] = report.Outcome{Verdict: report.Unmeasured, Text: "not measured: there is no server"}
	}
	return r
}

// rounds are three values around v, 2 % apart.
func rounds(v float64) report.Series { return report.Series{v * 0.99, v, v * 1.01} }

// spreadOut is a distribution with a tail around a median.
func spreadOut(median float64) report.Distribution {
	d := report.Distribution{Percentiles: []float64{1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100}, Count: 3000}
	for _, p := range d.Percentiles {
		d.MS = append(d.MS, median*math.Exp(2.2*math.Pow(p/100, 6))*(0.7+0.6*p/100))
	}
	return d
}

// broken is the fixture after a bad day: a lock that does not lock, a workload that
// fails, a store that could not be had, an interruption, and hostile texts.
func broken() *report.Report {
	r := fixture()
	r.Interrupted = true
	r.Missing["etcd2"] = "no such binary " + hostile
	r.Backends[1].Safety[report.DoubleGrants] = report.Outcome{Verdict: report.Bad, Text: "3 overlaps in 120,000 holds", Detail: hostile, Values: report.Series{1, 0, 2}, Unit: "overlaps"}
	r.Backends[1].Safety[report.StalledHolder] = report.Outcome{Verdict: report.Bad, Text: "told 1.2 s too late", Detail: "", Values: report.Series{-1200}, Unit: "ms"}
	r.Backends[2].Failed = map[string]string{"hot": "server has gone away " + hostile}
	delete(r.Backends[2].Figures, report.HotRate)
	r.Backends[4].Name = `<img src=x onerror=alert(3)>` // fits into a label
	r.Backends[4].URL = hostile
	r.Backends[4].Facts[0].Text = hostile
	r.Backends[4].Facts[0].Title = hostile
	r.Backends[4].Figures[report.Figure(hostile)] = report.Series{1, 2, 3}
	r.Backends[4].Curves[hostile] = report.Curve{X: hostile, Y: hostile, Points: points(1, 2, 3, 4)}
	r.Command = append(r.Command, hostile)
	return r
}

// bareReport is one with figures alone, and those of one round.
func bareReport() *report.Report {
	r := fixture()
	r.Params.Rounds = 1
	for _, b := range r.Backends {
		b.Safety, b.Facts, b.Distributions, b.Curves, b.Traffic = nil, nil, nil, nil, nil
		for f, s := range b.Figures {
			b.Figures[f] = s[:1]
		}
	}
	return r
}

// points are those of a curve, from x and y in turn.
func points(xy ...float64) []report.Point {
	var all []report.Point
	for i := 0; i < len(xy); i += 2 {
		all = append(all, report.Point{X: xy[i], Y: xy[i+1]})
	}
	return all
}
