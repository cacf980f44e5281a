package mutants

//go:generate go test -run TestPage -count=1 -update .

import (
	"path"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
)

// Mutant is a driver with a flaw.
type Mutant struct {
	Name string
	Flaw string // what it does wrong, as a sentence without a full stop
	Seen string // where that was seen; empty if it is only to be expected

	// KilledBy lists checks that must fail, and what their messages must say.
	KilledBy []Kill

	// MayTrip lists the other mandatory checks that may fail, as patterns of
	// path.Match, and Why says for what reason: what rests on the decision that is
	// wrong goes wrong with it.
	MayTrip []string
	Why     string

	design
}

// Kill is a check that catches a mutant.
type Kill struct {
	Check string // its ID
	Says  string // a part of its message that tells the flaw from others
}

// Harness returns the harness of the mutant. It works in virtual time only.
func (m Mutant) Harness() conformance.Harness { return &harness{design: m.design} }

// Allows reports whether the mandatory check may fail, besides those that must.
func (m Mutant) Allows(check string) bool {
	for _, pattern := range m.MayTrip {
		if ok, err := path.Match(pattern, check); ok && err == nil {
			return true
		}
	}
	return false
}

// Oddity is a driver that is unusual but keeps the contract: no check may fail.
type Oddity struct {
	Name string
	Odd  string // what is unusual about it

	design
	options []conformance.Option
}

// Options returns what a run needs to know of the driver that a calibration, which
// there is none of in virtual time, would have found out.
func (o Oddity) Options() []conformance.Option { return o.options }

// Harness returns the harness of the driver. It works in virtual time only.
func (o Oddity) Harness() conformance.Harness { return &harness{design: o.design} }

// design says how the clients of a driver are made. The zero value is memlock.
type design struct {
	// driver makes the driver of a client; nil stands for memlock behind the link.
	driver func(e *env) distlock.Driver

	// locker turns the client into what the suite gets; nil leaves it as it is.
	locker func(e *env, c *distlock.Client) distlock.Locker

	// encode is how names are stored; nil stores them as they are.
	encode func(name string) string

	// caps and timing change what the harness declares.
	caps   func(*conformance.Caps)
	timing func(*conformance.Timing)

	// async has the store answer before its replica has the write.
	async bool

	// waiters counts the queue of a name where the store does not keep it.
	waiters func(w *world, name string) int
}

// All returns the mutants: first those whose flaw is in the store's half, by what
// they get wrong, then those that tutorials teach.
func All() []Mutant {
	var all []Mutant
	for _, group := range []func() []Mutant{
		expiryMutants, clockMutants, ownerMutants, answerMutants, renewMutants, extendMutants,
		waitMutants, loadMutants, cancelMutants, tokenMutants, nameMutants, sharingMutants,
		lockMutants, shellMutants, hygieneMutants, closeMutants, declarationMutants, failoverMutants,
		tutorialMutants, tutorialTimers,
	} {
		all = append(all, group()...)
	}
	return all
}
