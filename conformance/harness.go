package conformance

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance/netfault"
	"github.com/distlock-go/distlock/driver"
)

// Harness is what the suite needs to examine a driver. Three methods are enough to begin; the optional interfaces below let
// it also break things. Most are tied to a capability that Caps must declare, present or absent: what is left open fails
// meta/caps-declared. Scoped, Stepped, NameBlocker and ServerBlocker need no word in Caps.
//
// Methods are called from several goroutines at a time.
type Harness interface {
	// Open returns a new client: a Locker that shares no connection, session or
	// state with another, as if it ran in a process of its own. The suite closes
	// it. ctx bounds the call only; c may be used for logging and clean-up.
	Open(ctx context.Context, c *C) (distlock.Locker, error)

	// Caps declares what the driver promises and what the harness can do.
	Caps() Caps

	// Timing declares the bounds that the driver keeps.
	Timing() Timing
}

// Scoped is implemented by a Harness that gives every check a store of its own, as
// one in virtual time must, because what was made outside of a bubble cannot be
// waited for inside.
type Scoped interface {
	// ForCheck returns the harness that c uses, with all optional interfaces. It
	// is called once per run of a check, inside of its bubble if there is one.
	ForCheck(c *C) Harness
}

// Proxy is implemented by a harness that can put a Link between a client and the
// server. Capability: "proxy".
type Proxy interface {
	// OpenVia is Open for a client with a link of its own, which carries its whole
	// traffic.
	OpenVia(ctx context.Context, c *C) (distlock.Locker, netfault.Link, error)
}

// Process is implemented by a harness that controls the server. Each method
// returns when its effect is there, Restart when the server answers again, on the
// data it had. Capability: "process". Checks that use it run alone.
type Process interface {
	Pause(ctx context.Context) error  // SIGSTOP: connections stay, nothing answers
	Resume(ctx context.Context) error // SIGCONT
	Kill(ctx context.Context) error   // SIGKILL: nothing is written any more
	Restart(ctx context.Context) error
}

// Inspector is implemented by a harness that can look into the store, behind the
// back of all clients. Capability: "inspector". It is another than driver.Inspector,
// by which a driver answers distlock.Inspect and List.
type Inspector interface {
	// Records returns how many live entries the store has of a name: holders and
	// waiters. What only keeps its tokens from falling, or remembers a release, does not count.
	Records(ctx context.Context, name string) (int, error)

	// Waiters returns how many of them wait, or -1 if the store keeps no queue.
	Waiters(ctx context.Context, name string) (int, error)

	// Delete ends the hold of a name, as an administrator would, and leaves what keeps tokens from falling. It returns nil if
	// nobody holds it.
	Delete(ctx context.Context, name string) error
}

// LockerInspector is an [Inspector] that believes what a client's Inspect and Break say. A harness embeds it if its store has no
// client of another kind.
type LockerInspector struct{ Admin distlock.Locker }

// Records implements Inspector.
func (i LockerInspector) Records(ctx context.Context, name string) (int, error) {
	st, err := distlock.Inspect(ctx, i.Admin, name)
	n := max(st.Waiters, 0)
	if st.Held {
		n++
	}
	return n, err
}

// Waiters implements Inspector.
func (i LockerInspector) Waiters(ctx context.Context, name string) (int, error) {
	st, err := distlock.Inspect(ctx, i.Admin, name)
	return st.Waiters, err
}

// Delete implements Inspector.
func (i LockerInspector) Delete(ctx context.Context, name string) error {
	if err := distlock.Break(ctx, i.Admin, name, 0); !errors.Is(err, distlock.ErrLost) {
		return err
	}
	return nil // nobody held it
}

// ServerClock is implemented by a harness that can set the server's clock.
// Capability: "server-clock". Checks that use it run alone.
type ServerClock interface {
	// Jump moves the clock by d, forwards or backwards.
	Jump(ctx context.Context, d time.Duration) error
}

// Failover is implemented by a harness on a replicated store that it can take the
// primary away from. Capability: "failover". Checks that use it run alone. It is
// used in this order, and may be used again afterwards.
type Failover interface {
	// Lag cuts the replica that comes next off from the primary, so that no later
	// write reaches it. Clients notice nothing, unless the store waits for it.
	Lag(ctx context.Context) error

	// Failover kills the primary and returns when that replica answers in its
	// place, at the addresses that clients have.
	Failover(ctx context.Context) error
}

// Namespaces is implemented by a harness if its driver can keep its locks apart from
// those of others on the same server: under a key prefix, in a table, below a path.
// Capability: "namespaces".
type Namespaces interface {
	// OpenIn is Open for a client in a namespace: lower-case letters and digits, a
	// letter first, 24 bytes at most. Nothing of it exists when it is used for the
	// first time: no table, no parent node. The harness may remove it when c is
	// over (C.Cleanup).
	OpenIn(ctx context.Context, c *C, namespace string) (distlock.Locker, error)
}

// Child is implemented by a harness that can run its clients in another process.
// Capability: "child".
type Child interface {
	// Child returns a command, not yet started, that runs a program. The program calls
	// ChildMain with clients of the same store; mostly it is the test binary itself,
	// and its TestMain does so if an environment variable says so.
	Child() *exec.Cmd
}

// Support says whether a capability is there. The zero value says that nobody has
// thought about it; meta/caps-declared fails a harness that leaves it so.
type Support int

// The values of Support.
const (
	Yes Support = iota + 1
	No
)

// String returns "yes", "no" or "undeclared".
func (s Support) String() string {
	switch s {
	case Yes:
		return "yes"
	case No:
		return "no"
	}
	return "undeclared"
}

// supportIf turns what is known into Yes or No.
func supportIf(b bool) Support {
	if b {
		return Yes
	}
	return No
}

// Cap names a capability, for Check.Needs and for reports: "fair", "push", "durable"
// and "quorum" are promises of the driver, "inspector", "proxy", "process",
// "server-clock", "failover", "namespaces" and "child" abilities of the harness.
type Cap string

const (
	capFair        Cap = "fair"         // first come, first served across clients
	capPush        Cap = "push"         // waiters are told of a release, and do not poll
	capDurable     Cap = "durable"      // locks and tokens survive a restart of the server
	capQuorum      Cap = "quorum"       // they survive a failover to another server as well
	capInspector   Cap = "inspector"    // the harness implements Inspector, the driver driver.Inspector
	capProxy       Cap = "proxy"        // the harness implements Proxy
	capProcess     Cap = "process"      // the harness implements Process
	capServerClock Cap = "server-clock" // the harness implements ServerClock
	capFailover    Cap = "failover"     // the harness implements Failover
	capNamespaces  Cap = "namespaces"   // the harness implements Namespaces
	capChild       Cap = "child"        // the harness implements Child
)

// Caps declares every capability as Yes or No. Fencing, renewal and loss signals
// are no capabilities: the contract demands them of every driver.
type Caps struct {
	Backend string // for reports: "redis"

	Fair, Push, Durable, Quorum                                         Support
	Inspector, Proxy, Process, ServerClock, Failover, Namespaces, Child Support
}

// CapsFrom returns what the declaration of a driver says. The abilities of the
// harness are left open.
func CapsFrom(d driver.Capabilities) Caps {
	return Caps{
		Backend: d.Backend,
		Fair:    supportIf(d.Fair),
		Push:    supportIf(d.Push),
		Durable: supportIf(d.Durability >= driver.Restart),
		Quorum:  supportIf(d.Durability >= driver.Quorum),
	}
}

// all lists the capabilities with their support, in the order of their constants.
func (c Caps) all() []capSupport {
	return []capSupport{
		{capFair, c.Fair}, {capPush, c.Push}, {capDurable, c.Durable}, {capQuorum, c.Quorum},
		{capInspector, c.Inspector}, {capProxy, c.Proxy}, {capProcess, c.Process},
		{capServerClock, c.ServerClock}, {capFailover, c.Failover}, {capNamespaces, c.Namespaces}, {capChild, c.Child},
	}
}

type capSupport struct {
	cap     Cap
	support Support
}

// of returns the support of one capability, if there is one of this name.
func (c Caps) of(cap Cap) (support Support, known bool) {
	for _, cs := range c.all() {
		if cs.cap == cap {
			return cs.support, true
		}
	}
	return 0, false
}

// String lists all capabilities in one line.
func (c Caps) String() string {
	var b strings.Builder
	b.WriteString(c.Backend + ":")
	for _, cs := range c.all() {
		fmt.Fprintf(&b, " %s=%s", cs.cap, cs.support)
	}
	return b.String()
}

// implements reports whether a harness has the optional interface of a capability;
// known is false for the promises of a driver.
func implements(h Harness, cap Cap) (has, known bool) {
	known = true
	switch cap {
	case capInspector:
		_, has = h.(Inspector)
	case capProxy:
		_, has = h.(Proxy)
	case capProcess:
		_, has = h.(Process)
	case capServerClock:
		_, has = h.(ServerClock)
	case capFailover:
		_, has = h.(Failover)
	case capNamespaces:
		_, has = h.(Namespaces)
	case capChild:
		_, has = h.(Child)
	default:
		known = false
	}
	return has, known
}
