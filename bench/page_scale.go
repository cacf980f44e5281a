package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// crowdTable shows how ours goes on with more clients on one name.
func (r *results) crowdTable(b *strings.Builder) {
	t := &table{head: []string{"clients on one name: pairs /s"}}
	for _, n := range crowds {
		t.head = append(t.head, number(float64(n)))
	}
	for _, st := range r.Stores {
		if len(st.Crowds) == 0 {
			continue
		}
		middle, least := []string{st.Title + ", median"}, []string{st.Title + ", least"}
		for _, n := range crowds {
			c := st.crowdOf(ours, n)
			if m, ok := c.Rate.Median(); ok {
				middle, least = append(middle, number(m)), append(least, number(slices.Min(c.Rate)))
			} else {
				middle, least = append(middle, "–"), append(least, "–")
			}
		}
		t.add(middle...)
		t.add(least...)
	}
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintf(b, "With more clients on one name, new ones in each of %d rounds:\n\n![Pairs a second by clients on one name](%s)\n\n", crowdRounds, clientsFile)
	t.write(b)
}

// heldTable shows what ours costs by the number of locks held.
func (r *results) heldTable(b *strings.Builder) {
	t := &table{head: []string{"", "locks held", "bytes of a lock", "requests /s", "client CPU, ms /s", "server CPU, ms /s"}}
	for _, st := range r.Stores {
		for _, p := range st.Held {
			one := &report.Backend{Figures: p.Figures}
			t.add(st.Title, number(float64(p.Locks)), cell(one, report.HeldBytes), cell(one, report.HeldRequests), cell(one, report.HeldClientCPU), cell(one, report.HeldServerCPU))
		}
	}
	if len(t.rows) == 0 {
		return
	}
	b.WriteString("distlock, with a TTL of 3 s; 10,000 locks have 6 s, 100,000 have 20 s. The memory of the first locks is that of the connections.\n\n")
	t.write(b)
}

// scaleTables are what "-scale" has measured, and where.
func (r *results) scaleTables(b *strings.Builder) {
	s := r.Scale
	if s == nil {
		return
	}
	b.WriteString("## Very many locks, very many waiters\n\n")
	fmt.Fprintf(b, "Taken on %s at commit %s by `%s`, which got %.0f%% of the processors: turns, requests and memory depend little on that, rates and times do.\n"+
		"%d stores hold at a time, each with a client process of its own; they take, free and have their waiters one after the other. Least left is what a lock had of its TTL when a renewal was confirmed; CPU is of one processor.\n\n",
		s.Taken.Format("2006-01-02"), orUnknown(s.Commit), s.Command, 100*s.Idle, sideBySide)
	long := &table{head: []string{"", "locks held", "minutes", "TTL", "lost", "least left", "requests /s", "KB /s", "client CPU", "server CPU", "bytes of a lock, client", "server", "taken /s"}}
	for _, l := range s.Long {
		if l.Failed != "" {
			long.add(l.Store, number(float64(l.Locks)), "failed: "+oneLine(l.Failed), "–", "–", "–", "–", "–", "–", "–", "–", "–", "–")
			continue
		}
		lost := number(float64(l.Lost))
		if l.Cause != "" {
			lost += ", the first " + oneLine(l.Cause)
		}
		long.add(l.Store, number(float64(l.Locks)), number(l.Held.Minutes()), l.TTL.String(), lost, percent(l.LeastLeft), number(l.Requests), number(l.Bytes/1000),
			percent(l.ClientCPU), known(l.ServerCPU, percent), number(l.Memory), known(l.Server, number), number(l.TakePerS))
	}
	long.write(b)
	fmt.Fprintf(b, "In %d processes, one goroutine waits for each name; the processes queue one after the other. Then all names are freed at once.\n\n", herdProcesses)
	herds := &table{head: []string{"", "processes × names", "served", "failed", "two at once", "out of order", "until all had a turn, s", "clients' CPU while all wait", "server CPU"}}
	for _, h := range s.Herds {
		if h.Failed != "" {
			herds.add(h.Store, fmt.Sprintf("%d × %d", h.Processes, h.Names), "failed: "+oneLine(h.Failed), "–", "–", "–", "–", "–", "–")
			continue
		}
		failed := number(float64(h.Failures))
		if h.Failure != "" {
			failed += ": " + oneLine(h.Failure)
		}
		herds.add(h.Store, fmt.Sprintf("%d × %d", h.Processes, h.Names), number(float64(h.Served)), failed, number(float64(h.Overlaps)), percent(h.Disorder), number(h.Drain),
			percent(h.ClientCPU), known(h.ServerCPU, percent))
	}
	herds.write(b)
	for _, h := range s.Herds {
		if why := fewer[h.Store]; why != "" {
			fmt.Fprintf(b, "%s has a tenth of the waiters: %s.\n\n", h.Store, why)
		}
	}
}

// known shows what is 0 if it could not be measured.
func known(v float64, show func(float64) string) string {
	if v == 0 {
		return "–"
	}
	return show(v)
}

func percent(share float64) string { return number(100*share) + "%" }
