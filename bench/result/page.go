package result

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock/bench/peers"
	"github.com/distlock-go/distlock/internal/servers"
)

const intro = `# Performance

distlock beside other lock libraries for Go, each workload in one run on the same servers. No figure on this page was
typed: it is made of [bench/results.json](../bench/results.json) by

` + "```" + `
make bench                                                          # measures, on your machine, and writes the page
cd bench && go run . -render results.json > ../docs/performance.md  # this page
` + "```" + `

`

const method = `## How it was measured

- Each figure is taken by a process of its own, which opens its connections, warms up and then measures. The servers are
  local single nodes on the same processors, started for the run, one backend at a time.
- **The servers do not wait for fsync**: a write reaches the kernel before the reply, not the disk. Throughput is that of
  the protocol and the code. On servers that wait for a disk, the difference between libraries that send the same number
  of writes shrinks.
- What is timed is measured in rounds. In each, all contenders of a backend take their turn at the same workload, in
  another order each time. Shown are the median over the rounds and, after ±, half of the distance between the
  extremes. **distlock ÷ this** is the median of the ratios round by round, with the lowest and the highest: above 1 is
  faster where the first column is a rate, below 1 where it is a time.
- **Hand-off** is from the call of Unlock to the return of a Lock that has waited for a random 20 to 120 ms in another
  client. A fixed wait would lock onto the phase of a poller.
- **Clients** have connections of their own, as processes have. With many on one name, a poller's throughput is that of
  one client that retakes its own lock: read it with Jain's index (1 is even, 1/n is one client having it all) and with the longest wait.
- **Client CPU** is what the processors did for the process of the client, per lock and unlock, **server CPU** what they
  did meanwhile for the processes of the servers, all together. Neither depends much on what else the machine does. In
  a hand-off, each of them is for two pairs of lock and unlock, of which one waits, and for what both sides do of
  themselves in the meantime, which is long.
- **Where the time goes** is a CPU profile, of a round of its own, of at least three seconds: of distlock, and of the
  peer by which it missed a goal in the row, or else of the best one. Each sample, of a hundredth of a second, is a stack, and is looked at from the
  innermost function outwards; the first that has a bucket decides. *System calls* are those of package syscall, whoever
  makes them; *scheduler* is what puts goroutines and threads to sleep and wakes them, with channels, timers and the poll
  of the network; *memory* is allocation, garbage collection and the growth of stacks; *client library* is what speaks to
  the store; *driver* is ours, or the lock library of a peer; *portable half* is the root package of distlock. Other
  functions of the runtime and the standard library count for what has called them; the *rest* is nobody's, but the
  benchmark's own. Microseconds are the share of the client CPU of the timed rounds. Of 100 samples, a share
  of 30% is one of 25 to 35%. Hand-offs are profiled with more pairs of clients at once than are timed.
- **Requests** are counted by a proxy that reads the protocol. Pings of the connection (ZooKeeper, HTTP/2) are not
  requests; a renewal is. Scripts, pipelined commands and transactions are what they are on the wire.
- **Held** locks are renewed, with a TTL of 10 s. Bytes are live heap and stacks in the client; goroutines and
  processor time are the client's, too.
- **Places late** is by how many places the most overtaken waiter was served after its turn; **requests to come** is
  what all of them sent within two seconds of their coming, connecting included.

`

// Page writes the results as Markdown. misses is the explanation of goals that
// were missed, and may be empty.
func Page(w io.Writer, r *Results, misses string) error {
	var b strings.Builder
	b.WriteString(intro)
	writeSetting(&b, r)
	writeGoals(&b, r)
	if missed(r) > 0 && strings.TrimSpace(misses) != "" {
		fmt.Fprintf(&b, "## Why goals were missed\n\n%s\n\n", strings.TrimSpace(misses))
	}
	b.WriteString(method)
	for _, backend := range servers.Kinds {
		if on := r.Backends[backend]; on != nil {
			writeBackend(&b, backend, on, r)
		}
	}
	_, err := io.WriteString(w, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}

// setting is where and when the rows were taken.
type setting struct {
	first, last time.Time
	commits     []string
	rounds      int     // the fewest of any row that is timed
	load        float64 // the highest
}

func (r *Results) setting() setting {
	var s setting
	for _, on := range r.Backends {
		for _, row := range on.Rows {
			if s.first.IsZero() || row.Taken.Before(s.first) {
				s.first = row.Taken
			}
			if row.Taken.After(s.last) {
				s.last = row.Taken
			}
			if row.Commit != "" && !slices.Contains(s.commits, row.Commit) {
				s.commits = append(s.commits, row.Commit)
			}
			if row.InTurn && (s.rounds == 0 || len(row.Rounds) < s.rounds) {
				s.rounds = len(row.Rounds)
			}
			s.load = max(s.load, row.Load)
		}
	}
	slices.Sort(s.commits)
	return s
}

func writeSetting(b *strings.Builder, r *Results) {
	s, m := r.setting(), r.Machine
	when := s.first.Format(time.DateOnly)
	if day := s.last.Format(time.DateOnly); day != when {
		when += " to " + day
	}
	fmt.Fprintf(b, "Taken %s, at least %d rounds of what is timed, on %s/%s with %d processors", when, s.rounds, m.OS, m.Arch, m.CPUs)
	if m.CPU != "" {
		fmt.Fprintf(b, " (%s)", m.CPU)
	}
	fmt.Fprintf(b, ", %s.", m.Go)
	switch {
	case len(s.commits) > 1:
		b.WriteString(" It was measured in pieces, not all of them\nof the same code: with each table stands the commit of distlock (+: with changes).")
	case len(s.commits) == 1:
		fmt.Fprintf(b, " distlock is at commit %s%s.", s.commits[0], changes(s.commits[0]))
	}
	// The benchmarks themselves keep a client, a server and at times a proxy busy.
	if own := float64(m.CPUs) + 2; s.load > own {
		fmt.Fprintf(b, "\n**The machine was busy with other work**, with a load of up to %.0f: rates are too low and spreads wide. Ratios,\n"+
			"requests, bytes and processor time are less touched by it.", s.load)
	}
	b.WriteString("\nAnother machine gives other figures; the ratios travel better.\n\n")
}

// changes explains the plus at the end of a commit.
func changes(commit string) string {
	if strings.HasSuffix(commit, "+") {
		return ", with changes"
	}
	return ""
}

func missed(r *Results) int {
	n := 0
	for _, g := range Goals {
		if b := r.Backends[g.Backend]; b != nil && g.Judge(b).Verdict == Missed {
			n++
		}
	}
	return n
}

// writeGoals writes the table of goals: a line for each row, a column for each backend.
func writeGoals(b *strings.Builder, r *Results) {
	b.WriteString("## What was aimed at, and what was reached\n\n| |")
	for _, backend := range servers.Kinds {
		fmt.Fprintf(b, " %s |", titles[backend])
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(servers.Kinds)) + "\n")
	counts := make(map[Verdict]int)
	var names []string
	for _, g := range Goals {
		if !slices.Contains(names, g.Row) {
			names = append(names, g.Row)
		}
	}
	for _, name := range names {
		fmt.Fprintf(b, "| %s |", name)
		for _, backend := range servers.Kinds {
			i := slices.IndexFunc(Goals, func(g Goal) bool { return g.Row == name && g.Backend == backend })
			if i < 0 {
				b.WriteString(" |")
				continue
			}
			o := Goals[i].Judge(r.Backends[backend])
			counts[o.Verdict]++
			fmt.Fprintf(b, " %s |", o.cell())
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "\n%d goals met, %d missed, %d not measured.\n\n", counts[Met], counts[Missed], counts[Unmeasured])
}

// cell writes an outcome into one cell of a table.
func (o Outcome) cell() string {
	lines := []string{string(o.Verdict)}
	if o.Verdict != Met {
		lines[0] = "**" + lines[0] + "**"
	}
	for _, p := range o.Parts {
		line := fmt.Sprintf("%s, goal %s", p.Measured, p.Goal)
		if name := o.label(p); name != "" {
			line = name + ": " + line
		}
		if p.Verdict == Missed {
			line += " ✗"
		}
		lines = append(lines, line)
	}
	return oneLine(strings.Join(lines, "<br>"))
}

// label says what a part is about, as far as that tells it from the others: the
// figure, and the size of the row.
func (o Outcome) label(p Part) string {
	var words []string
	sizes, figures := make(map[string]bool), make(map[Figure]bool)
	for _, other := range o.Parts {
		sizes[other.Row], figures[other.figure] = true, true
	}
	if len(sizes) > 1 {
		words = append(words, strings.TrimLeft(p.Row, "abcdefghijklmnopqrstuvwxyz"))
	}
	for _, c := range columnsOf(p.Row) {
		if c.figure == p.figure && len(figures) > 1 {
			words = append(words, c.title)
		}
	}
	return strings.Join(words, ", ")
}

func writeBackend(b *strings.Builder, backend servers.Kind, on *Backend, r *Results) {
	pieces := len(r.setting().commits) > 1
	fmt.Fprintf(b, "## %s\n\nServer: %s.\n\n", titles[backend], on.Server)
	for _, row := range on.Rows {
		header, lines := row.cells(backend)
		fmt.Fprintf(b, "| %s |\n|---|%s\n", strings.Join(header, " | "), strings.Repeat("--:|", len(header)-1))
		for _, line := range lines {
			fmt.Fprintf(b, "| %s |\n", oneLine(strings.Join(line, " | ")))
		}
		b.WriteString("\n")
		if pieces {
			fmt.Fprintf(b, "Taken %s, at commit %s.\n\n", row.Taken.Format(time.DateTime), cmp.Or(row.Commit, "unknown"))
		}
		for _, c := range peers.On(backend) {
			if why := row.Failed[c.Name]; why != "" {
				fmt.Fprintf(b, "%s failed in a round: %s.\n\n", c.Name, oneLine(why))
			}
		}
	}
	for _, c := range peers.On(backend) {
		if c.Note == "" {
			continue
		}
		version := r.Versions[c.Module]
		if version != "" {
			version = " (" + c.Module + " " + version + ")"
		}
		fmt.Fprintf(b, "- **%s**%s: %s\n", c.Name, version, c.Note)
	}
	b.WriteString("\n")
	writeProfiles(b, backend, on)
	writeHeap(b, on)
}

// oneLine keeps what a library said in the line of a table that it stands in.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }
