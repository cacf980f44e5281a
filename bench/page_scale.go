package main

import (
	"fmt"
	"strings"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// curves shows how ours goes on with more clients and more locks.
func (r *results) curves(b *strings.Builder) {
	clients := &table{head: []string{"clients on one name: lock and unlock /s"}}
	held := &table{head: []string{"locks held: bytes of a lock · requests /s · CPU of client / server, ms /s"}}
	for _, st := range r.Stores {
		if len(st.Clients.Points) == 0 {
			continue
		}
		row := []string{st.Title}
		for i, p := range st.Clients.Points {
			if len(clients.head) <= i+1 {
				clients.head = append(clients.head, number(p.X))
			}
			row = append(row, number(p.Y))
		}
		clients.add(row...)
		row = []string{st.Title}
		for i, p := range st.Held {
			if len(held.head) <= i+1 {
				held.head = append(held.head, number(float64(p.Locks)))
			}
			one := &report.Backend{Figures: p.Figures}
			row = append(row, fmt.Sprintf("%s · %s · %s / %s", cell(one, report.HeldBytes), cell(one, report.HeldRequests),
				cell(one, report.HeldClientCPU), cell(one, report.HeldServerCPU)))
		}
		held.add(row...)
	}
	if len(clients.rows) == 0 {
		return
	}
	b.WriteString("## distlock with more clients and more locks\n\nLocks are held with a TTL of 3 s, 10,000 with 6 s, 100,000 with 20 s.\n\n")
	clients.write(b)
	held.write(b)
}

// scaleTables are what "-scale" has measured, and where.
func (r *results) scaleTables(b *strings.Builder) {
	s := r.Scale
	if s == nil {
		return
	}
	b.WriteString("## Very many locks, very many waiters\n\n")
	fmt.Fprintf(b, "Taken on %s at commit %s by `%s`, which got %.0f%% of the processors: turns, requests and memory depend little on that, rates and times do.\n"+
		"All stores hold at the same time, each with a client process of its own. Least left is what a lock had of its TTL when a renewal was confirmed; CPU is of one processor.\n\n",
		s.Taken.Format("2006-01-02"), orUnknown(s.Commit), s.Command, 100*s.Idle)
	long := &table{head: []string{"", "locks held", "minutes, TTL", "lost", "least left", "requests /s", "KB/s", "CPU of client / server", "bytes of a lock: client / server", "taken /s"}}
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
	fmt.Fprintf(b, "In %d processes, one goroutine waits for each name; the processes queue one after the other. Then all names are freed at once.\n\n", herdProcesses)
	herds := &table{head: []string{"", "processes × names", "served", "failed", "two at once", "out of order", "until all had a turn, s", "CPU while all wait: clients / server"}}
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
