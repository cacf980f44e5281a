package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// attempt is what one worker did between getting the lock and giving it back, or
// between reading and writing if there is no lock.
type attempt struct {
	worker       int
	token        int64
	from, to     time.Time // while it had reason to believe that it held the lock
	lease        time.Time // until when it was granted at first
	read, result int
	refused      bool
}

// attempts returns what happened, by the time it began.
func (c *crew) attempts() []attempt {
	var all []attempt
	open := make(map[int]*attempt) // by worker
	for _, e := range c.log {
		if open[e.Worker] == nil {
			open[e.Worker] = &attempt{worker: e.Worker, from: e.At}
		}
		v := open[e.Worker]
		switch e.What {
		case ready:
			delete(open, e.Worker)
		case holds:
			v.token, v.from, v.lease = e.Token, e.At, e.Until
		case reads:
			v.read = e.Balance
		case wrote, refused:
			v.to, v.result, v.refused = e.At, e.Balance, e.What == refused
		case released:
			v.to = e.Until
			all = append(all, *v)
			delete(open, e.Worker)
		case gaveUp:
			delete(open, e.Worker)
		case done:
			if !v.to.IsZero() { // no lock was taken, so none was released
				all = append(all, *v)
			}
			delete(open, e.Worker)
		}
	}
	slices.SortFunc(all, func(a, b attempt) int { return a.from.Compare(b.from) })
	return all
}

// barWidth is the number of columns of the longest bar.
const barWidth = 40

// print shows the holders over time, and how it ended.
func (r *run) print(w io.Writer) {
	all := r.crew.attempts()
	begin, end := all[0].from, all[0].to
	for _, v := range all {
		if v.to.After(end) {
			end = v.to
		}
	}
	column := max(end.Sub(begin)/barWidth, 1)
	width := max(len("token"), len(fmt.Sprint(all[len(all)-1].token))) // tokens rise
	fmt.Fprintf(w, "worker %*s     from       to   read   wrote\n", width, "token")
	for _, v := range all {
		token, result := "none", fmt.Sprint(v.result)
		if v.token > 0 {
			token = fmt.Sprint(v.token)
		}
		if v.refused {
			result = "refused"
		}
		from := min(int(v.from.Sub(begin)/column), barWidth-1)
		length := max(1, min(int(v.to.Sub(v.from)/column), barWidth-from))
		fmt.Fprintf(w, "%6d %*s %7.3fs %7.3fs %6d %7s |%s%s%s|\n", v.worker, width, token,
			v.from.Sub(begin).Seconds(), v.to.Sub(begin).Seconds(), v.read, result,
			strings.Repeat(" ", from), strings.Repeat("#", length), strings.Repeat(" ", barWidth-from-length))
	}
	balance, _ := r.account.state()
	fmt.Fprintf(w, "The balance is %d: %s.\n\n", balance, r.outcome())
}

// outcome says what the callers of the ten workers were told, and whether it is true.
func (r *run) outcome() string {
	balance, refused := r.account.state()
	gone := r.crew.count(gaveUp)
	told := workers - gone
	text := fmt.Sprintf("%d of %d were told: withdrawn", told, workers)
	if gone > 0 {
		text += fmt.Sprintf(", %d: %s", gone, r.crew.text(gaveUp))
	}
	if lost := balance/amount - gone; lost > 0 {
		text += fmt.Sprintf(", but %d of these are lost", lost)
	}
	if refused > 0 {
		text += "; a stale write was refused by its token, and done again"
	}
	return text
}

// summary prints one line for each run.
func summary(w io.Writer, runs []*run) {
	fmt.Fprintf(w, "%-8s %8s %8s   %s\n", "mode", "balance", "took", "what the workers were told")
	for _, r := range runs {
		balance, _ := r.account.state()
		fmt.Fprintf(w, "%-8s %8d %7.1fs   %s\n", r.mode.name, balance, r.crew.took().Seconds(), r.outcome())
	}
}
