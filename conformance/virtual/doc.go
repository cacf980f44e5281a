// Package virtual stands in for a network and a server where there is neither: for
// drivers within one process, in virtual time. A [Link] delays the calls of a driver
// (Delay), fails them before or after their effect (CutRequest, CutReply), lets later
// ones overtake them (HoldRequest), and loses them (Drop). [Stuck] has the requests of
// single names hang.
//
//	func (h harness) OpenVia(context.Context, *conformance.C) (distlock.Locker, netfault.Link, error) {
//		link := virtual.NewLink()
//		l, err := driver.New(link.Driver(newDriver()), nil)
//		return l, link, err
//	}
package virtual
