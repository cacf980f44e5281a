// Package conformance examines a driver for locks: whether it keeps every clause of
// the contract of package distlock, also when replies are lost, servers hang and
// processes die. It takes any distlock.Locker.
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, harness{}, nil)
//	}
//
// A [Harness] says how to open a client, what the driver promises ([Caps]) and within what bounds ([Timing]). The optional
// interfaces [Proxy], [Process], [Inspector], [ServerClock], [Failover], [Namespaces], [Child], [Stepped], [Scoped],
// [NameBlocker] and [ServerBlocker] let the suite break more and see more.
//
// # What a result means
//
// A check has one of four outcomes. Passed and failed speak for themselves. Skipped
// means that the check needs a capability declared absent. Inconclusive means that the
// machine was too slow to tell; only such a check is tried again, with longer times,
// because to repeat a failed one would hide a lock that goes wrong one time in three.
//
// # Why a correct driver is never accused
//
// All stamps are taken on one monotonic clock, before a call and after it. "Not before" is judged by the return of the
// later call against the start of the earlier, so that every delay of the machine speaks for the driver. "By then" is the
// bound that the driver declares, widened by a slack measured before the first check. A holder takes the lock for its own
// for as long as its Err is nil and its Deadline has not passed; two holders are at fault only if these times have
// overlapped for certain.
//
// # Checks of one's own
//
// [Options].Checks adds a driver's own checks to a run. Inside of one, [C] takes the
// verdict; it stands in for testing.T so that the same checks can run in a program
// ([Verify]).
package conformance
