package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/distlock-go/distlock/internal/compare/measure"
	"github.com/distlock-go/distlock/internal/compare/report"
)

// compareParams are the parameters of a comparison as flags: a profile, and what
// overrides it.
type compareParams struct {
	profile string
	safety  bool
	report.Params
}

// addTo declares the flags. The defaults that they show are those of the default
// profile.
func (c *compareParams) addTo(f *pflag.FlagSet) {
	standard := measure.Profiles[0]
	p := standard.Params
	f.StringVar(&c.profile, "profile", standard.Name, "preset of what follows: "+strings.Join(profileNames(), ", "))
	f.BoolVar(&c.safety, "safety", true, "also break things on purpose, and look what happens")
	f.StringSliceVar(&c.Workloads, "workloads", p.Workloads, `what to run, of what "distlock help workloads" lists`)
	f.DurationVar(&c.Duration, "duration", p.Duration, "of one workload on one backend in one round; 50ms to 1h")
	f.IntVar(&c.Rounds, "rounds", p.Rounds, "how often the backends take turns; 1 to 100")
	f.IntVar(&c.Clients, "clients", p.Clients, "clients, with connections of their own, that fight for one name; 2 to 1000")
	f.IntVar(&c.Names, "names", p.Names, "names locked in parallel by one client, or chosen from by arrivals; 1 to 10000")
	f.IntVar(&c.Held, "held", p.Held, "locks held at the same time by one client; 1 to 100000")
	f.IntVar(&c.Waiters, "waiters", p.Waiters, "goroutines of one process that wait for one name; 1 to 100000")
	f.DurationVar(&c.TTL, "ttl", p.TTL, "TTL of the locks (of up to 10,000 in held: 6s at the most); 2s to 1h")
	f.DurationVar(&c.Hold, "hold", p.Hold, "how long a lock is held before it is freed, in parallel, hot, arrivals, try and waiting; 0s to 1m")
	f.Float64Var(&c.Rate, "rate", p.Rate, "calls that begin a second in arrivals; up to 100000, more than 0 adds arrivals to the workloads of a profile")
}

// resolve returns the parameters: those of the profile, over them what was set.
func (c *compareParams) resolve(f *pflag.FlagSet) (report.Params, error) {
	p, err := measure.ProfileParams(c.profile)
	if err != nil {
		return p, err
	}
	set := c.Params
	for name, take := range map[string]func(){
		"workloads": func() { p.Workloads = set.Workloads },
		"duration":  func() { p.Duration = set.Duration },
		"rounds":    func() { p.Rounds = set.Rounds },
		"clients":   func() { p.Clients = set.Clients },
		"names":     func() { p.Names = set.Names },
		"held":      func() { p.Held = set.Held },
		"waiters":   func() { p.Waiters = set.Waiters },
		"ttl":       func() { p.TTL = set.TTL },
		"hold":      func() { p.Hold = set.Hold },
		"rate":      func() { p.Rate = set.Rate },
	} {
		if f.Changed(name) {
			take()
		}
	}
	if p.Rate > 0 && !f.Changed("workloads") && !slices.Contains(p.Workloads, "arrivals") {
		p.Workloads = append(p.Workloads, "arrivals")
	}
	return p, p.Check()
}

func profileNames() []string {
	var names []string
	for _, f := range measure.Profiles {
		names = append(names, f.Name)
	}
	return names
}

// profileHelp describes the profiles.
func profileHelp() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(&b, "Profiles:\n")
	for _, f := range measure.Profiles {
		p := f.Params
		fmt.Fprintf(w, "  %s\t%s;\n", f.Name, f.About)
		fmt.Fprintf(w, "  \t%s,\n", strings.Join(p.Workloads, " "))
		fmt.Fprintf(w, "  \tduration %v, rounds %d, clients %d, names %d, held %d, waiters %d, ttl %v, hold %v, rate %v\n",
			p.Duration, p.Rounds, p.Clients, p.Names, p.Held, p.Waiters, p.TTL, p.Hold, p.Rate)
	}
	_ = w.Flush() // a Builder takes everything
	return b.String()
}

// interrupted gives err the exit status of the signal that ended the run, if one did.
func interrupted(signals *interrupts, err error) error {
	if !signals.ended() {
		return err
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		say("%v", err)
	}
	return signals.exit()
}
