package compare

import (
	"math"
	"time"
)

// hostile is what a server or a URL may say.
const hostile = `</script><script>alert(1)</script><img src=x onerror=alert(2)>"'&` + "\x1b[31m\n`|*"

// fixture is a report with all parts, of five backends that differ in everything
// that a report can show. The figures are made up.
func fixture() *Report {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r := &Report{
		Schema: Schema, Started: start, Finished: start.Add(4*time.Minute + 12*time.Second),
		Command: []string{"distlock", "compare", "--html", "report.html"},
		Machine: Machine{OS: "linux", Arch: "amd64", Go: "go1.26.8", CPUs: 2, CPU: "Fixture 3000", Version: "(devel)"},
		Params:  small(),
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
			"one Lua script per step", "key expiry", "volatile: a crash or fail-over may forget a lock"},
		{"mysql", "mysql://root@127.0.0.1:40002/distlock", "local process mariadbd", 1900, 1820, 5300, 940, 0.61, 310, 1.9, 8.8, 20110, 2, 655, 6200, 103,
			"unique index, one statement per step", "expiry column, judged by the server's clock", "restart: InnoDB log"},
		{"zk", "zk://127.0.0.1:40003", "local process zookeeper", 1210, 1100, 7600, 1010, 1, 18, 1.21, 2.6, 24000, 4, 530, 4100, 2,
			"ephemeral sequential nodes", "session time-out", "quorum"},
		{"etcd", "etcd://127.0.0.1:40004", "local process etcd", 1420, 1330, 8100, 1005, 1, 17, 1.19, 2.7, 20900, 4, 1010, 5900, 2,
			"one transaction per step", "lease", "quorum"},
	} {
		b := &Backend{Name: f.name, URL: f.url, Origin: f.origin, Version: "1.2.3", Figures: map[Figure]Series{
			SoloRate: rounds(f.solo), ParallelRate: rounds(f.many), HotRate: rounds(f.hot), HotJain: rounds(f.jain),
			HotWorst: rounds(f.worst), HandOff50: rounds(f.hand), HandOff99: rounds(f.tail),
		}}
		b.Figures[WaitAll], b.Figures[HeldBytes], b.Figures[HeldLost] = rounds(f.hand*200), Series{900 + f.hand}, Series{0}
		if f.bare > 0 {
			b.Figures[WaitRequests], b.Figures[FailOver] = rounds(f.herd+10), rounds(f.recover)
			b.Notes = []string{"does not wait for the disk"}
			b.Figures[BareRate], b.BareCommands = rounds(f.bare), "SET, DEL"
			b.Traffic = map[string]Traffic{"solo": {f.requests, f.bytes}, "hot": {f.requests * 1.5, f.bytes * 2}}
		}
		b.Facts = []Fact{
			{"exclusion", "mechanism of exclusion", f.exclusion}, {"crashed_holder", "a crashed holder is freed by", f.crash},
			{"durability", "locks survive", f.durability}, {"clock", "clock assumptions", "one monotonic clock; the server's own"},
			{"fairness", "order of service", "first come, first served"},
		}
		b.Safety = map[Hazard]Outcome{
			DoubleGrants:    {Good, "none in 120,000 holds", "all workloads", Series{0, 0, 0}, "overlaps"},
			KilledHolder:    {Good, "next after " + number(f.recover/1000) + " s", "SIGKILL of a process", rounds(f.recover), "ms"},
			StalledHolder:   {Good, "told " + number(f.told/1000) + " s before", "SIGSTOP past the TTL", rounds(f.told), "ms"},
			CutOffHolder:    {Good, "told " + number(f.told/1000) + " s before", "a proxy that forwards nothing", rounds(f.told * 0.9), "ms"},
			ServerRestart:   {Caution, "lost, holder told", "SIGKILL and restart on the same data", nil, ""},
			CancelledWaiter: {Good, "nothing left", "", rounds(1), "requests"},
			Herd:            {Good, number(f.herd) + " requests", "100 waiters", rounds(f.herd), "requests"},
			Fairness:        {Good, "Jain " + number(f.jain), "", nil, ""},
		}
		b.Distributions = map[string]Distribution{"solo": spreadOut(1000 / f.solo), "handoff": spreadOut(f.hand), "hot": spreadOut(f.worst / 8)}
		b.Curves = map[string]Curve{
			"hot_by_clients": {X: "clients on one name", Y: "lock+unlock per second",
				Points: []Point{{2, f.hot * 1.1}, {8, f.hot}, {32, f.hot * 0.95}, {128, f.hot * 0.8}}},
			"held_memory": {X: "locks held", Y: "bytes a lock", Points: []Point{{100, 900}, {1000, 700 + f.hand*10}, {10000, 690}}},
		}
		r.Backends = append(r.Backends, b)
	}
	r.Backends[0].Unmeasured = map[string]string{"failover": "the store is in this process"}
	mem := r.Backends[0].Safety
	for _, h := range []Hazard{CutOffHolder, ServerRestart} {
		mem[h] = Outcome{Verdict: Unmeasured, Text: "not measured: there is no server"}
	}
	return r
}

// rounds are three values around v, 2 % apart.
func rounds(v float64) Series { return Series{v * 0.99, v, v * 1.01} }

// spreadOut is a distribution with a tail around a median.
func spreadOut(median float64) Distribution {
	d := Distribution{Percentiles: []float64{1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100}, Count: 3000}
	for _, p := range d.Percentiles {
		d.MS = append(d.MS, median*math.Exp(2.2*math.Pow(p/100, 6))*(0.7+0.6*p/100))
	}
	return d
}

// broken is the fixture after a bad day: a lock that does not lock, a workload that
// fails, a store that could not be had, an interruption, and hostile texts.
func broken() *Report {
	r := fixture()
	r.Interrupted = true
	r.Missing["etcd2"] = "no such binary " + hostile
	r.Backends[1].Safety[DoubleGrants] = Outcome{Bad, "3 overlaps in 120,000 holds", hostile, Series{1, 0, 2}, "overlaps"}
	r.Backends[1].Safety[StalledHolder] = Outcome{Bad, "told 1.2 s too late", "", Series{-1200}, "ms"}
	r.Backends[2].Failed = map[string]string{"hot": "server has gone away " + hostile}
	delete(r.Backends[2].Figures, HotRate)
	r.Backends[4].Name = `<img src=x onerror=alert(3)>` // fits into a label
	r.Backends[4].URL = hostile
	r.Backends[4].Facts[0].Text = hostile
	r.Backends[4].Facts[0].Title = hostile
	r.Backends[4].Figures[Figure(hostile)] = Series{1, 2, 3}
	r.Backends[4].Curves[hostile] = Curve{X: hostile, Y: hostile, Points: []Point{{1, 2}, {3, 4}}}
	r.Command = append(r.Command, hostile)
	return r
}

// bareReport is one with figures alone, and those of one round.
func bareReport() *Report {
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
