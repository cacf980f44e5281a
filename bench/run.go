package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/internal/compare/report"
	"github.com/distlock-go/distlock/internal/servers"
)

// store is a kind of server, set up in one way.
type store struct {
	id, title string
	kind      servers.Kind
	setUp     func(ctx context.Context, s *servers.Server) error // nil if nothing is to be done
}

const noFlushID = "mysql-noflush"

var stores = []store{
	{"redis", "Redis", servers.Redis, nil},
	{"mysql", "MySQL", servers.MySQL, nil},
	{noFlushID, "MySQL, no flush at commit", servers.MySQL, noFlush},
	{"pg", "Postgres", servers.Postgres, nil},
	{"zk", "ZooKeeper", servers.ZooKeeper, nil},
	{"etcd", "etcd", servers.Etcd, nil},
}

// noFlush has the log flushed once a second, not at each commit.
func noFlush(ctx context.Context, s *servers.Server) error {
	config, err := mysql.ParseDSN("tcp(" + s.Addr() + ")/")
	if err != nil {
		return err
	}
	if config.User, config.Passwd, err = login(s.AdminURL()); err != nil {
		return err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	_, err = db.ExecContext(ctx, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
	return err
}

// run is one run of the benchmarks.
type run struct {
	settings
	results *results
	log     io.Writer
	began   time.Time
	most    float64 // see alone
}

func (r *run) everything(ctx context.Context) error {
	for _, st := range r.stores {
		if err := r.store(ctx, st); err != nil {
			return fmt.Errorf("%s: %w", st.id, err)
		}
	}
	return nil
}

// contender is what is measured on a store, and where.
type contender struct {
	peer   peers.Peer // its name alone, if it is no peer
	urls   []string
	pids   []int
	result *report.Backend
}

func (c *contender) locks() bool { return c.peer.Name != bare }

// store measures all contenders on one store.
func (r *run) store(ctx context.Context, st store) error {
	fmt.Fprintf(r.log, "%s %s: starting\n", r.clock(), st.id)
	all := append([]peers.Peer{{Name: ours, Store: st.kind}}, peers.On(st.kind)...)
	all = append(all, peers.Peer{Name: bare, Store: st.kind})
	nodes, err := launch(ctx, st, all)
	defer func() {
		for _, s := range nodes {
			if err := s.Close(); err != nil {
				fmt.Fprintln(r.log, err)
			}
		}
	}()
	if err != nil {
		return err
	}
	measured := &measured{ID: st.id, Title: st.title, Server: nodes[0].Version()}
	r.results.Stores = append(r.results.Stores, measured)
	var cs []*contender
	for _, p := range all {
		c := &contender{peer: p, result: &report.Backend{Name: p.Name}}
		for _, s := range nodes[:max(p.Nodes, 1)] {
			c.urls, c.pids = append(c.urls, s.URL()), append(c.pids, s.PIDs()...)
		}
		cs = append(cs, c)
		measured.Contenders = append(measured.Contenders, c.result)
	}
	for round := range r.rounds {
		if err := r.awaitIdle(ctx); err != nil {
			return err
		}
		for _, w := range timed {
			// In another order each time: nobody always comes after the same one.
			rand.Shuffle(len(cs), func(i, k int) { cs[i], cs[k] = cs[k], cs[i] })
			for _, c := range cs {
				if w.bare != c.locks() {
					r.job(ctx, st, c, w, fmt.Sprintf("round %d of %d", round+1, r.rounds))
				}
			}
		}
	}
	if err := r.explain(ctx, st, cs, measured); err != nil {
		fmt.Fprintf(r.log, "%s %s: %v\n", r.clock(), st.id, err)
	}
	for _, w := range once {
		for _, c := range cs {
			if c.locks() && !(w.apart && c.peer.Shared) {
				r.job(ctx, st, c, w, "once")
			}
		}
	}
	if !r.quick && st.setUp == nil { // or it is the same store again
		if err := r.curves(ctx, st, cs, measured); err != nil {
			return err
		}
	}
	return errors.Join(ctx.Err(), r.awaitIdle(ctx)) // what was measured at last counts as well
}

// launch starts as many servers as any contender needs.
func launch(ctx context.Context, st store, all []peers.Peer) (nodes []*servers.Server, err error) {
	need := 1
	for _, p := range all {
		need = max(need, p.Nodes)
	}
	for range need {
		s, err := servers.StartDurable(ctx, st.kind)
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, s)
		if st.setUp != nil {
			if err := st.setUp(ctx, s); err != nil {
				return nodes, err
			}
		}
	}
	return nodes, nil
}

// workload is one or more of those of compare, done in one job.
type workload struct {
	ids    []string
	bare   bool // for the bare commands, not for locks
	apart  bool // not for what does not keep the goroutines of one process apart
	change func(p *report.Params)
}

// timed workloads are done in rounds.
var timed = []workload{
	{ids: []string{"bare"}, bare: true},
	{ids: []string{"solo"}},
	{ids: []string{"bare_parallel"}, bare: true},
	{ids: []string{"parallel"}},
	{ids: []string{"hot"}},
	{ids: []string{"handoff"}, change: func(p *report.Params) { p.Duration *= 3 }},
}

// once are those that count what does not depend on the moment.
var once = []workload{
	{ids: []string{"traffic"}},
	{ids: []string{"waiting"}, apart: true, change: func(p *report.Params) { p.Duration *= 4 }},
	{ids: []string{"held"}, change: func(p *report.Params) { p.TTL = heldTTL(p.Held) }},
}

// heldTTL makes renewals frequent enough to be counted in little time, but for so many
// locks that a store would do nothing else.
func heldTTL(locks int) time.Duration {
	switch {
	case locks <= 1000:
		return 3 * time.Second
	case locks <= 10_000:
		return 6 * time.Second
	}
	return 20 * time.Second
}

// params are those of a job, but for what its workload changes. The TTL is one that ZooKeeper takes with its default ticks.
func (r *run) params() report.Params {
	p := report.Params{Duration: r.duration, Rounds: 1, Clients: 16, Names: 64, Held: 10_000, Waiters: 100, TTL: 20 * time.Second}
	if r.quick {
		p.Held, p.Waiters = 1000, 50
	}
	return p
}

// job has a contender do a workload, and adds what came of it to its figures.
func (r *run) job(ctx context.Context, st store, c *contender, w workload, when string) {
	if ctx.Err() != nil {
		return
	}
	fmt.Fprintf(r.log, "%s %s: %s, %s, %s\n", r.clock(), st.id, w.ids[0], c.peer.Name, when)
	j := r.newJob(st, c, w)
	if r.profiles != "" { // the last round's stays
		j.Profile = filepath.Join(r.profiles, strings.ReplaceAll(strings.Join([]string{st.id, c.peer.Name, w.ids[0]}, "-"), " ", "_")+".prof")
	}
	b, err := j.do(ctx)
	if err != nil && ctx.Err() == nil {
		c.result.Fail(w.ids[0], err)
	}
	if err == nil {
		merge(c.result, b)
	}
}

func (r *run) newJob(st store, c *contender, w workload) job {
	p := r.params()
	if w.change != nil {
		w.change(&p)
	}
	if c.peer.Most > 0 {
		p.Held = min(p.Held, c.peer.Most)
	}
	return job{Kind: st.kind, Contender: c.peer.Name, Workloads: w.ids, Params: p, URLs: c.urls, PIDs: c.pids, Patience: r.patience}
}

// heldScale is how many locks are held for the curve.
var heldScale = []int{1, 100, 10_000, 100_000}

// crowds are how many clients want one name, for the curve; the others are measured with few and with
// many of them only.
var (
	crowds     = []int{2, 3, 4, 8, 16, 32, 64}
	peerCrowds = []int{2, 64}
)

// crowdRounds is how often each of them is measured: what goes wrong with few clients goes wrong now and then.
const crowdRounds = 10

// crowdTime is for how long, in each round.
const crowdTime = 600 * time.Millisecond

// curves shows how a store goes on with more clients and with more locks. The most come
// last: what that does to a server is not to disturb the others.
func (r *run) curves(ctx context.Context, st store, cs []*contender, m *measured) error {
	if err := r.crowd(ctx, st, cs, m); err != nil {
		return err
	}
	own := *cs[slices.IndexFunc(cs, func(c *contender) bool { return c.peer.Name == ours })]
	for _, n := range heldScale {
		own.result = new(report.Backend)
		r.job(ctx, st, &own, workload{ids: []string{"held"}, change: func(p *report.Params) {
			p.Held, p.TTL = n, heldTTL(n)
		}}, fmt.Sprintf("%d locks", n))
		m.Held = append(m.Held, heldPoint{Locks: n, Figures: own.result.Figures, Failed: own.result.Failed["held"]})
	}
	return nil
}

// crowd measures one name that is wanted by few and by many. The clients are new in each round and for each number of
// them: what a library has to learn about a name, such as that a subscription works, it learns each time.
func (r *run) crowd(ctx context.Context, st store, cs []*contender, m *measured) error {
	for round := range crowdRounds {
		if err := r.awaitIdle(ctx); err != nil {
			return err
		}
		for _, n := range crowds {
			for _, c := range cs {
				if !c.locks() || c.peer.Name != ours && (round >= r.rounds || !slices.Contains(peerCrowds, n)) {
					continue
				}
				one := *c
				one.result = new(report.Backend)
				r.job(ctx, st, &one, workload{ids: []string{"hot"}, change: func(p *report.Params) {
					p.Clients, p.Duration = n, crowdTime
				}}, fmt.Sprintf("%d clients, round %d of %d", n, round+1, crowdRounds))
				m.crowdOf(c.peer.Name, n).add(one.result)
			}
		}
	}
	return nil
}

func (r *run) clock() string { return fmt.Sprintf("[%4.0fs]", time.Since(r.began).Seconds()) }
