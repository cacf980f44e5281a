package conformance

import (
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

// Option configures Run, Verify and Collect.
type Option func(*config)

type config struct {
	virtual   bool
	seed      uint64
	seeded    bool
	minUnit   time.Duration
	minSlack  time.Duration
	parallel  int
	keep      func(Check) bool
	extra     []Check
	expect    *Expect
	progress  func(Result)
	artifacts string
}

func newConfig(opts []Option) config {
	c := config{
		parallel:  8,
		keep:      func(Check) bool { return true },
		progress:  func(Result) {},
		artifacts: os.TempDir(),
	}
	for _, opt := range opts {
		opt(&c)
	}
	if !c.seeded {
		c.seed = rand.Uint64()
		if text := os.Getenv(seedVariable); text != "" {
			seed, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				panic(fmt.Sprintf("conformance: %s is %q, allowed is a number of 64 bits", seedVariable, text))
			}
			c.seed = seed
		}
	}
	return c
}

// WithVirtualTime runs every check in a testing/synctest bubble of its own. It is
// for drivers that do no I/O; the harness must be Scoped and make its store in
// ForCheck.
func WithVirtualTime() Option { return func(c *config) { c.virtual = true } }

// WithSeed fixes what is random in the checks, but for the names. The default is
// random, or what the environment variable DISTLOCK_CONFORMANCE_SEED says.
func WithSeed(seed uint64) Option { return func(c *config) { c.seed, c.seeded = seed, true } }

// WithUnit raises the TTL that checks work with to d at least. The default is
// derived from the speed of the server.
func WithUnit(d time.Duration) Option { return func(c *config) { c.minUnit = d } }

// WithSlack raises to d at least what the machine may be late by. The default is
// measured before the first check.
func WithSlack(d time.Duration) Option { return func(c *config) { c.minSlack = d } }

// WithParallel sets how many checks run side by side in real time, 8 by default.
func WithParallel(n int) Option { return func(c *config) { c.parallel = max(n, 1) } }

// WithFilter runs only the checks that keep returns true for.
func WithFilter(keep func(Check) bool) Option { return func(c *config) { c.keep = keep } }

// WithChecks adds checks of the driver's own behind those of the suite.
func WithChecks(extra ...Check) Option { return func(c *config) { c.extra = extra } }

// WithProgress makes Verify call f after every check, in the order in which they
// end, never concurrently.
func WithProgress(f func(Result)) Option { return func(c *config) { c.progress = f } }

// WithArtifacts sets the directory for the histories of failed checks, by default
// that for temporary files.
func WithArtifacts(dir string) Option { return func(c *config) { c.artifacts = dir } }

// Expect pins what may be skipped.
type Expect struct {
	// Skips are the IDs of the checks that are skipped on this harness. A check
	// that is skipped without being listed fails, and so does one that is listed
	// and not skipped: a skip list must not grow, nor grow old, by itself.
	Skips []string
}

// WithExpect pins the skips. Without it any number of checks may be skipped.
func WithExpect(e Expect) Option { return func(c *config) { c.expect = &e } }
