package conformance

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

// seedVariable is the environment variable that repeats a run with its seed. An
// environment variable, not a flag: it needs no registration in a program that has
// flags of its own.
const seedVariable = "DISTLOCK_CONFORMANCE_SEED"

// defaultParallel has the checks end soon after the longest of them. More would only take
// connections, of which a server has some hundreds, and processors: with 24 on two of them, leases of two
// seconds were lost under -race.
const defaultParallel = 12

// Options configures Run, Verify and Collect. The zero value, and nil, mean the
// defaults.
type Options struct {
	// VirtualTime runs every check in a testing/synctest bubble of its own. It is
	// for drivers that do no I/O; the harness must be Scoped and make its store in
	// ForCheck.
	VirtualTime bool

	// Look, if set, is called beside the checks, four times a second, and returns why the store does not answer, or takes no new
	// client. So is a client taken for one that cannot be opened. It gets a second for that. A check that fails meanwhile is
	// inconclusive, also one that runs alone: it is for a server that no check stops. What an oracle finds stays a failure.
	// Report.Outage has what it has told. It is not called in virtual time.
	Look func(ctx context.Context) error

	// Filter selects the checks that run; nil runs all of them.
	Filter func(Check) bool

	// Checks are the driver's own; they run after those of the suite.
	Checks []Check

	// Skips pins the IDs of the checks that are skipped on this harness. A check fails
	// if it is skipped and not listed, and also if it is listed and not skipped: a
	// skip list must not grow, nor grow old, by itself. Nil pins nothing; an empty
	// list says that no check may be skipped.
	Skips []string

	// Seed fixes what is random in the checks, except for the names. Zero stands for
	// the environment variable DISTLOCK_CONFORMANCE_SEED, or a random seed.
	Seed uint64

	// Sample has the checks of the group after/ look at some of the situations that a name can be in, by the
	// seed, also in virtual time. In real time they do so unless DISTLOCK_CONFORMANCE_PAIRS is "all".
	Sample bool

	// Unit is the least TTL that the checks work with. The default is derived from
	// the speed of the server.
	Unit time.Duration

	// Slack is the least that the machine may be late by. The default is measured
	// before the first check.
	Slack time.Duration

	// Parallel is how many checks run side by side in real time, 12 by default. Nearly
	// all they do is to wait for a TTL to pass. A check has four clients in the mean,
	// each with connections of its own.
	Parallel int

	// Strict has Run fail for a check that stays inconclusive, which it reports as skipped
	// otherwise. Verify and Collect say which are, and leave the verdict to the caller.
	Strict bool

	// Progress is called by Verify after every check, in the order of their ends,
	// never concurrently.
	Progress func(Result)

	// Artifacts is the directory for the histories of failed checks, by default
	// that for temporary files. A run in which a check fails makes one directory there.
	Artifacts string
}

// withDefaults returns the options of a run.
func (o *Options) withDefaults() Options {
	var all Options
	if o != nil {
		all = *o
	}
	if all.Filter == nil {
		all.Filter = func(Check) bool { return true }
	}
	if all.Progress == nil {
		all.Progress = func(Result) {}
	}
	all.Parallel = max(cmp.Or(all.Parallel, defaultParallel), 1)
	all.Artifacts = cmp.Or(all.Artifacts, os.TempDir())
	if all.Seed == 0 {
		all.Seed = environmentSeed()
	}
	return all
}

func environmentSeed() uint64 {
	text := os.Getenv(seedVariable)
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("conformance: %s is %q, allowed is a number of 64 bits", seedVariable, text))
	}
	return seed
}
