package mutants

//go:generate go test -run TestPage -count=1 -update .

import (
	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/driver"
)

// Mutant is a driver with a flaw.
type Mutant struct {
	Name string
	Flaw string // what it does wrong, as a sentence without a full stop
	Seen string // where that was seen; empty if it is only to be expected

	// KilledBy lists checks that must fail, and what their messages must say.
	KilledBy []Kill

	design
}

// Kill is a check that catches a mutant.
type Kill struct {
	Check string // its ID
	Says  string // a part of its message that tells the flaw from others
}

// Harness returns the harness of the mutant. It works in virtual time only.
func (m Mutant) Harness() conformance.Harness {
	if m.spaces {
		return spaced{&harness{design: m.design}}
	}
	return &harness{design: m.design}
}

// Tolerated is an unusual driver that keeps the contract: no check may fail.
type Tolerated struct {
	Name    string
	Unusual string // what is unusual about it

	design
}

// Harness returns the harness of the driver. It works in virtual time only.
func (o Tolerated) Harness() conformance.Harness { return &harness{design: o.design} }

// design says how the clients of a driver are made. The zero value is memlock.
type design struct {
	// driver makes the driver of a client; nil stands for memlock behind the link.
	driver func(e *env) driver.Driver

	// store makes the store of a check; nil stands for memlock.
	store func() store

	// locker turns the client into what the suite gets; nil leaves it as it is.
	locker func(e *env, c *driver.Client) distlock.Locker

	// encode is how names are stored; nil stores them as they are.
	encode func(name string) string

	// caps and timing change what the harness declares.
	caps   func(*conformance.Caps)
	timing func(*conformance.Timing)

	// spaces has the harness open clients in namespaces.
	spaces bool

	// async has the store answer before its replica has the write.
	async bool

	// waiters counts the queue of a name where the store does not keep it.
	waiters func(w *world, name string) int
}

// All returns the mutants: first those with a flaw in the store's half, by what they
// get wrong, then those that tutorials teach.
func All() []Mutant {
	var all []Mutant
	for _, group := range []func() []Mutant{
		expiryMutants, clockMutants, ownerMutants, lookingMutants, answerMutants, refusalMutants, renewMutants, extendMutants,
		batchMutants, leaseMutants, inspectMutants, listMutants, breakMutants, sweepMutants,
		isolationMutants, roughMutants, promptMutants,
		waitMutants, turnMutants, cutMutants, loadMutants, longMutants, lingerMutants, extensionMutants, ageMutants, successorMutants, crowdMutants,
		scriptMutants, shortMutants, cancelMutants, tokenMutants, nameMutants, spaceMutants, slowMutants, sharingMutants,
		lockMutants, wrapperMutants, hygieneMutants, closeMutants, declarationMutants, failoverMutants,
		againMutants, lastingMutants, busyMutants, waitedMutants, prefixMutants, operateMutants, likenessMutants, idleMutants, termMutants, shareMutants,
		comebackMutants, halfTruthMutants, shownMutants, nobodyMutants,
		saidMutants, endMutants, clauseMutants, unlockMutants,
		plainMutants, meetingMutants, bookMutants,
		narrowMutants, rareMutants, callerMutants, pileMutants, narrowPatterns, historyMutants, seldomMutants, overlookedMutants, unboundedMutants,
		besideMutants, unheardMutants, closingMutants, leavingMutants, queueingMutants, sinceMutants, tellingMutants,
		tutorialMutants, tutorialTimers,
	} {
		all = append(all, group()...)
	}
	return all
}
