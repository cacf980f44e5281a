package netfault

import "time"

// Link is the network path of one client, under the control of a test. [TCPProxy]
// is one over TCP.
//
// A request is one uninterrupted run of bytes from the client on one connection,
// a reply one from the server: a new one begins when the direction changes, and a new
// request also when a fault of requests is armed. A link that knows its protocol may count
// messages instead. What a protocol sends by itself, such as a heartbeat, may count as well.
// So a check must not rely on the k-th request being a certain one; it sweeps k.
//
// An armed fault (CutReply, CutRequest, DropReply, DropRequest, HoldRequest) counts over all connections
// of the link from the call on, fires once, and is then disarmed; arming again
// replaces what was armed before. Settings (Drop, Delay, Slice) last until they
// are changed or until Heal. All methods are safe for concurrent use and return at
// once.
type Link interface {
	// CutReply arms a fault: the k-th reply from now, k >= 1, is not delivered;
	// its connection is closed instead. The server has done what was asked.
	CutReply(k int)

	// CutRequest arms a fault: the k-th request from now is not forwarded; its
	// connection is closed instead. The server never hears of it.
	CutRequest(k int)

	// DropReply arms a fault: the k-th reply from now, k >= 1, and all that follows it on its
	// connection, is swallowed. The connection stays open, silent, until Drop or Heal
	// closes it. The server has done what was asked.
	DropReply(k int)

	// DropRequest arms the same for the k-th request from now: the server never hears of it.
	DropRequest(k int)

	// HoldRequest arms a fault: the k-th request from now, and all that follows
	// it on its connection, waits for Release. Other connections go on.
	HoldRequest(k int)

	// Release forwards what HoldRequest holds back, and disarms it.
	Release()

	// Drop discards bytes in the given directions, without closing a connection
	// and without a word to either side. New connections are accepted, and
	// silent. What was discarded is gone: when Drop is switched off, connections
	// that have lost bytes are closed, because their protocol cannot recover.
	Drop(toServer, toClient bool)

	// Delay holds every run of bytes, in each direction, for half of d, give or
	// take a random part of at most half of jitter, in order. Zero is no delay.
	Delay(d, jitter time.Duration)

	// Slice makes both directions arrive in pieces of one byte.
	Slice(on bool)

	// CutAll closes all connections now. New ones are accepted.
	CutAll()

	// Heal disarms every fault, undoes every setting and releases what is held.
	Heal()

	// Requests returns how many requests the client has sent since the link was
	// opened, delivered or not.
	Requests() int

	// Bytes returns how many bytes have arrived from both sides.
	Bytes() int64

	// Connections returns how many connections the client has open.
	Connections() int

	// Fired returns how often a fault took effect: an armed one that fired, a
	// Drop under which bytes were discarded, a CutAll that closed something. A
	// Delay or Slice under which bytes passed counts where the link can tell.
	Fired() int
}
