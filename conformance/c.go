package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock/conformance/oracle"
)

// C is what a check works with: it opens clients, makes names, tells the time and
// takes the verdict. It stands in for testing.T: there is none outside of go test. It
// is safe for concurrent use.
type C struct {
	check    Check
	harness  Harness
	timing   Timing
	cal      Calibration // Unit doubles from one attempt to the next
	seed     uint64
	sparse   bool // as Options.Sample
	prefix   string
	recorder *oracle.Recorder
	bounds   *bounds

	openings *openings // of all checks; nil in virtual time
	outages  *outages  // of all checks; may be nil

	delays  func(from, to time.Time) time.Duration // of the machine; nil in virtual time
	slowest func(from time.Time) time.Duration     // of the store, for another client, or a processor, for a thread; nil in virtual time

	ctx  context.Context // ends with the check, or when it has been stopped
	stop context.CancelCauseFunc

	mu        sync.Mutex
	status    Status
	reason    string
	convicted bool          // by an oracle: that is no question of time
	clause    string        // that the verdict is about, where it is not the check's
	broken    bool          // it has failed by a hang or a panic
	seeming   string        // likewise, if no oracle knows better
	stalls    []stall       // times without an answer of the store, or of the machine, that the check has seen
	asking    time.Duration // since when timeStore has waited for one; 0 if it does not
	missing   Cap           // for want of which it was skipped
	streams   uint64
	logs      []string
	cleanups  []func()
	clients   []*client
	needFired int
	lawless   string
	simple    bool // the model is not asked
	queueless atomic.Bool
	helpers   sync.WaitGroup
}

// errStopped ends the context of a check when its outcome has been decided.
var errStopped = errors.New("conformance: the check is over")

// ID returns the ID of the check.
func (c *C) ID() string { return c.check.ID }

// Context ends when the check does. Calls of a check that use it need no bound of
// their own against hanging for ever.
func (c *C) Context() context.Context { return c.ctx }

// Name returns a name for a lock that no other run has used. Equal labels give
// equal names within one run of a check.
func (c *C) Name(label string) string { return c.prefix + label }

// Virtual reports whether time is that of a testing/synctest bubble.
func (c *C) Virtual() bool { return c.cal.Virtual }

// Unit returns the TTL that the check works with, a multiple of the driver's
// granularity.
func (c *C) Unit() time.Duration { return c.cal.Unit }

// Slack returns what the machine may be late by: every "by then" of a check is
// widened by it.
func (c *C) Slack() time.Duration { return c.cal.Slack }

// Timing returns the bounds that the harness declares.
func (c *C) Timing() Timing { return c.timing }

// Rand returns a new generator, the n-th call the n-th stream of the seed that a
// failure prints. It is not safe for concurrent use: every goroutine takes its own.
func (c *C) Rand() *rand.Rand {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams++
	h := fnv.New64a()
	fmt.Fprintf(h, "%s#%d", c.check.ID, c.streams)
	return rand.New(rand.NewPCG(c.seed, h.Sum64()))
}

// Logf adds a line to what is printed if the check does not pass.
func (c *C) Logf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs = append(c.logs, fmt.Sprintf(format, args...))
}

// Failf decides that the driver is at fault and ends the calling goroutine: that of
// Check.Run, one started by Go, or a clean-up. The text says what was seen and what
// had to be; rule, stamps and seed are added to it.
func (c *C) Failf(format string, args ...any) { c.decide(Failed, fmt.Sprintf(format, args...)) }

// breach is Failf for what breaks another clause than the one that the check is
// about.
func (c *C) breach(clause, format string, args ...any) {
	c.under(clause, func() { c.Failf(format, args...) })
}

// seems is breach for what may be the consequence of something else, which an oracle knows better.
func (c *C) seems(clause, format string, args ...any) {
	c.mu.Lock()
	if c.status == "" {
		c.seeming = clause
	}
	c.mu.Unlock()
	c.Failf(format, args...)
}

// under runs f. If f fails the check, that is a breach of clause.
func (c *C) under(clause string, f func()) {
	c.breaks(clause)
	f()
	c.breaks("")
}

// breaks sets the clause that a failure from now on breaks; "" is that of the check.
func (c *C) breaks(clause string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status == "" {
		c.clause = clause
	}
}

// Skipf decides that the check does not apply here and ends the calling goroutine.
func (c *C) Skipf(format string, args ...any) { c.decide(Skipped, fmt.Sprintf(format, args...)) }

// lacks is Skipf for want of a capability.
func (c *C) lacks(cap Cap, why string) {
	c.mu.Lock()
	c.missing = cap
	c.mu.Unlock()
	c.Skipf("%s", why)
}

// Inconclusivef decides that the machine was too slow to tell, and ends the calling
// goroutine. The check is run again with twice the Unit, three times at the most.
func (c *C) Inconclusivef(format string, args ...any) {
	c.decide(Inconclusive, fmt.Sprintf(format, args...))
}

// decide notes the first verdict; what comes after it is mostly its consequence,
// such as calls that fail because the context of the check has ended.
func (c *C) decide(s Status, reason string) {
	c.verdict(s, reason)
	runtime.Goexit()
}

func (c *C) verdict(s Status, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status != "" {
		if !strings.Contains(reason, context.Canceled.Error()) { // else it is this verdict that ended it
			c.logs = append(c.logs, fmt.Sprintf("afterwards: %s: %s", s, reason))
		}
		return
	}
	c.status, c.reason = s, reason
	c.stop(errStopped)
}

// blamed is the clause that a failure is about; c.mu is held.
func (c *C) blamed() string { return cmp.Or(c.clause, c.seeming, c.check.Clause) }

// collapse fails the check by a hang or a panic. A machine that is late is no excuse for either.
func (c *C) collapse(reason string) {
	c.mu.Lock()
	c.broken = c.broken || c.status == ""
	c.mu.Unlock()
	c.verdict(Failed, reason)
}

// Go runs f in a goroutine that the check waits for before it ends. f may call
// Failf and the like; it must return when Context ends.
func (c *C) Go(f func()) {
	c.helpers.Go(func() { c.contain(f) })
}

// contain runs f and turns a panic into a failure.
func (c *C) contain(f func()) {
	defer func() {
		if r := recover(); r != nil {
			c.collapse(fmt.Sprintf("panic: %v\n%s", r, debug.Stack()))
		}
	}()
	f()
}

// Cleanup registers f to be called when the check and its goroutines are over and
// all its clients are closed, last in, first out. It is meant for harnesses; a
// check just defers.
func (c *C) Cleanup(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanups = append(c.cleanups, f)
}

// sleep waits for d, and ends the goroutine if the check is over before. What it oversleeps counts for stood: the renewal of
// a lock waits for its turn on the processors of this process as it did, also where the canary was woken in time by another one.
func (c *C) sleep(d time.Duration) {
	due := c.now() + max(d, 0)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		if late := c.now() - due; late >= slowLook {
			c.noteStall(late)
		}
	case <-c.ctx.Done():
		runtime.Goexit()
	}
}

// now is the time on the clock of all stamps.
func (c *C) now() time.Duration { return c.recorder.Now() }

// sleepUntil waits until the clock of the stamps shows at.
func (c *C) sleepUntil(at time.Duration) { c.sleep(at - c.now()) }

// sleepInto waits until so many sixty-fourths of the lease of h are over.
func (c *C) sleepInto(h *lease, sixtyFourths time.Duration) {
	c.sleepUntil(h.ret + (h.Ends()-h.ret)*sixtyFourths/64)
}

// skew is how much of d the server's clock may be off against ours in a correct store:
// both run freely, and servers round instants to a millisecond.
func (c *C) skew(d time.Duration) time.Duration {
	if c.Virtual() {
		return 0
	}
	return time.Millisecond + d/1000
}

// soon is how long a waiter may take to get a free name.
func (c *C) soon() time.Duration { return c.timing.WakeLag + c.cal.Slack }

// poll is the pause between two looks at something that will happen.
func (c *C) poll() time.Duration {
	if c.Virtual() {
		return 10 * time.Millisecond
	}
	return 2 * time.Millisecond
}

// eventually calls cond until it is true, and reports false if that takes longer
// than the bound. The last call is made after the bound has passed, and what the machine
// was late meanwhile.
func (c *C) eventually(bound time.Duration, cond func() bool) bool {
	for began := c.now(); ; c.sleep(c.poll()) {
		late := c.past(began, began+bound)
		if cond() {
			return true
		}
		if late {
			c.doubt(began, began+bound)
			return false
		}
	}
}

// unjudged keeps the oracles away from the history of this check: something happens in
// it that no client has done.
func (c *C) unjudged(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lawless = why
}

// breaksLocks is unjudged for a check that breaks locks.
func (c *C) breaksLocks() {
	c.unjudged("locks are broken, and their holders may believe in them for a renewal period")
}

// unmodelled keeps the model away from a history with so much at a time that its
// search would be given up. The other oracles look at it.
func (c *C) unmodelled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.simple = true
}

// requireFired makes the check inconclusive unless the faults of its links take
// effect at least n times: a fault that never fired proves nothing.
func (c *C) requireFired(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.needFired = n
}

// fired counts the faults that have taken effect so far.
func (c *C) fired() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, p := range c.clients {
		if p.link != nil {
			n += p.link.Fired()
		}
	}
	return n
}

// can returns the harness as one of its optional interfaces, if it implements that and
// declares the capability: what is declared absent is not used, even if it is there.
// It may not work here.
func can[T any](c *C, capability Cap) (t T, ok bool) {
	if support, _ := c.harness.Caps().of(capability); support != Yes {
		return t, false
	}
	t, ok = c.harness.(T)
	return t, ok
}

// inspector returns that of the harness, for checks that name it in Needs.
func (c *C) inspector() Inspector { i, _ := can[Inspector](c, capInspector); return i }

// observe notes how near the driver came to one of its bounds.
func (c *C) observe(bound string, d time.Duration) { c.bounds.observe(bound, d) }
