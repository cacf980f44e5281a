package harness

import (
	"time"

	"github.com/distlock-go/distlock/conformance"
	"github.com/distlock-go/distlock/conformance/netfault"
)

// Links are those of one client to all servers of a store, with the same fault on each.
type Links []netfault.Link

// Via puts a proxy before each address, until c is over.
func Via(c *conformance.C, targets []string) (all Links, addrs []string, err error) {
	for _, target := range targets {
		p, err := netfault.NewTCPProxy(target, c.Rand().Uint64())
		if err != nil {
			return nil, nil, err
		}
		c.Cleanup(func() {
			if err := p.Close(); err != nil {
				c.Logf("closing the proxy: %v", err)
			}
		})
		all, addrs = append(all, p), append(addrs, p.Addr())
	}
	return all, addrs, nil
}

var _ netfault.Link = Links{}

func (l Links) each(f func(netfault.Link)) {
	for _, p := range l {
		f(p)
	}
}

// most is that of the server that sees the most: bounds are for one server.
func (l Links) most(f func(netfault.Link) int) (most int) {
	l.each(func(p netfault.Link) { most = max(most, f(p)) })
	return most
}

// CutReply and the methods below implement netfault.Link.
func (l Links) CutReply(k int)    { l.each(func(p netfault.Link) { p.CutReply(k) }) }
func (l Links) CutRequest(k int)  { l.each(func(p netfault.Link) { p.CutRequest(k) }) }
func (l Links) DropReply(k int)   { l.each(func(p netfault.Link) { p.DropReply(k) }) }
func (l Links) DropRequest(k int) { l.each(func(p netfault.Link) { p.DropRequest(k) }) }
func (l Links) HoldRequest(k int) { l.each(func(p netfault.Link) { p.HoldRequest(k) }) }
func (l Links) Release()          { l.each(netfault.Link.Release) }
func (l Links) Drop(toServer, toClient bool) {
	l.each(func(p netfault.Link) { p.Drop(toServer, toClient) })
}
func (l Links) Delay(d, jitter time.Duration) {
	l.each(func(p netfault.Link) { p.Delay(d, jitter) })
}
func (l Links) Slice(on bool)    { l.each(func(p netfault.Link) { p.Slice(on) }) }
func (l Links) CutAll()          { l.each(netfault.Link.CutAll) }
func (l Links) Heal()            { l.each(netfault.Link.Heal) }
func (l Links) Requests() int    { return l.most(netfault.Link.Requests) }
func (l Links) Connections() int { return l.most(netfault.Link.Connections) }
func (l Links) Fired() int       { return l.most(netfault.Link.Fired) }

// Bytes is that of all servers together: it shows whether anything was sent at all, to
// whichever of them.
func (l Links) Bytes() (n int64) {
	l.each(func(p netfault.Link) { n += p.Bytes() })
	return n
}
