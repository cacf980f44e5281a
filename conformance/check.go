package conformance

import (
	"strings"
	"time"
)

//go:generate go test -run TestChecksPage -count=1 -update .

// Check is one thing that every driver must do, or must never do. Its ID is stable:
// it names the sub-test of Run, selects the check in Verify and stands in pinned
// skip lists.
type Check struct {
	// ID is "group/name", in lower case.
	ID string

	// Clause is the number of the contract's clause that the check protects, as
	// the contract counts them: "H6". "meta" stands for a rule of the suite.
	Clause string

	// Rule is the sentence that a failing driver has broken. It is printed with
	// every failure.
	Rule string

	// Mandatory checks need nothing optional of a driver: one that does not pass them
	// all does not implement the contract. Their Needs, if any, are abilities of the
	// harness.
	Mandatory bool

	// Needs are capabilities: the check is skipped if one is absent.
	Needs []Cap

	// Alone is set where the check stops the server, or changes its clock: it runs when
	// no other does.
	Alone bool

	// Heavy is set where the check is a load for machine and server: it runs beside
	// others, but beside one at the most that is heavy as well.
	Heavy bool

	// Run is the check itself. It ends the check with Failf, Skipf or
	// Inconclusivef of C, and passes if it just returns.
	Run func(*C)

	// span is how much longer than others the check may take in virtual time, where
	// years cost nothing.
	span time.Duration
}

// Group returns the part of the ID before the slash.
func (k Check) Group() string {
	group, _, _ := strings.Cut(k.ID, "/")
	return group
}

// Checks returns all checks, in the order of the reports: first what everything else
// rests on.
func Checks() []Check {
	var all []Check
	for _, group := range []func() []Check{
		metaChecks,
		coreChecks,
		heldChecks,
		afterChecks,
		ownerChecks,
		pairChecks,
		herdChecks,
		stoppedChecks,
		expiryChecks,
		namesChecks,
		waitChecks,
		cancelChecks,
		renewChecks,
		autoChecks,
		batchChecks,
		lostChecks,
		fairChecks,
		timeChecks,
		handoverChecks,
		stressChecks,
		faultChecks,
		roughChecks,
		leakChecks,
		closeChecks,
		reentChecks,
		inspectChecks,
		listChecks,
		breakChecks,
		sweepChecks,
		isolateChecks,
		lastingChecks,
		waitedChecks,
		operateChecks,
		againChecks,
		plainChecks,
		electChecks,
		onceChecks,
		maxHoldChecks,
		wantedChecks,
		semChecks,
		rwChecks,
	} {
		all = append(all, group()...)
	}
	return all
}
