package main

import (
	"fmt"
	"strings"
)

// scaleTables are what "-scale" has measured, and where.
func (r *results) scaleTables(b *strings.Builder) {
	s := r.Scale
	if s == nil {
		return
	}
	b.WriteString("## Very many locks, very many waiters\n\n")
	fmt.Fprintf(b, "Taken on %s at commit %s by `%s`; the run got %.0f%% of the processors.\nTurns, requests and memory depend little on that; rates and times do, and locks are lost where neither client nor server runs. Each store holds in a process of its own, all stores at once.\n\n",
		s.Taken.Format("2006-01-02"), orUnknown(s.Commit), s.Command, 100*s.Idle)
	long := &table{head: []string{"held", "locks", "minutes, TTL", "lost", "least left of a TTL", "requests /s", "KB/s", "CPU of client / server", "bytes of a lock: client / server", "taken /s"}}
	for _, l := range s.Long {
		if l.Failed != "" {
			long.add(l.Store, number(float64(l.Locks)), "failed: "+oneLine(l.Failed), "–", "–", "–", "–", "–", "–", "–")
			continue
		}
		lost := number(float64(l.Lost))
		if l.Cause != "" {
			lost += ", the first " + oneLine(l.Cause)
		}
		long.add(l.Store, number(float64(l.Locks)), fmt.Sprintf("%s, %v", number(l.Held.Minutes()), l.TTL), lost, percent(l.LeastLeft), number(l.Requests), number(l.Bytes/1000),
			percent(l.ClientCPU)+" / "+percent(l.ServerCPU), number(l.Memory)+" / "+number(l.Server), number(l.TakePerS))
	}
	long.write(b)
	fmt.Fprintf(b, "Waiters in %d processes queue one process after the other, each once for each name; then all names are freed.\n\n", herdProcesses)
	herds := &table{head: []string{"waiters", "processes × names", "served", "failed", "two at once", "out of order", "until all had a turn, s", "CPU while all wait: clients / server"}}
	for _, h := range s.Herds {
		if h.Failed != "" {
			herds.add(h.Store, fmt.Sprintf("%d × %d", h.Processes, h.Names), "failed: "+oneLine(h.Failed), "–", "–", "–", "–", "–")
			continue
		}
		failed := number(float64(h.Failures))
		if h.Failure != "" {
			failed += ": " + oneLine(h.Failure)
		}
		herds.add(h.Store, fmt.Sprintf("%d × %d", h.Processes, h.Names), number(float64(h.Served)), failed, number(float64(h.Overlaps)), percent(h.Disorder), number(h.Drain),
			percent(h.ClientCPU)+" / "+percent(h.ServerCPU))
	}
	herds.write(b)
	b.WriteString("MySQL has a tenth of the waiters: one that does not poll is a connection, and a thread of the server.\n\n")
}

func percent(share float64) string { return number(100*share) + "%" }
