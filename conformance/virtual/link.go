package virtual

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock/conformance/netfault"
)

// Link is a netfault.Link between a client and a server in the same process, where a
// call is the request and its return the reply. It works in virtual time.
//
// Method Driver puts it in front of a driver. A driver that makes several requests
// in one method passes each of them through Do instead.
type Link struct {
	// Remembers says that the store itself refuses a Try that arrives behind the release of its claim. Else Driver keeps such a
	// Try from it: a store in the process, like that of memlock, has no need to remember what was released.
	Remembers bool

	mu                           sync.Mutex
	cutReply, cutRequest, holdIn int           // how many more until the armed fault fires; 0 is not armed
	repeatIn, hangIn             int           // likewise
	loseReply, loseRequest       int           // likewise
	swallowed                    bool          // one of these has fired since the last Heal or Drop
	held                         chan struct{} // closed by Release
	dropUp, dropDown             bool
	mended                       chan struct{} // closed when a Drop is switched off
	healed                       chan struct{} // closed by Heal
	reset                        chan struct{} // closed by CutAll
	delay, jitter                time.Duration
	delayed                      bool       // the delay has had an effect, and is counted
	behind                       []*passage // delayed requests that have yet to arrive: the client has left
	requests, fired              int
	bytes                        int64
	dialled                      int
	closed                       bool
}

var _ netfault.Link = (*Link)(nil)

// NewLink returns a link that passes everything on at once. In virtual time it
// must be made inside of the bubble that uses it.
func NewLink() *Link {
	return &Link{
		held:   make(chan struct{}),
		mended: make(chan struct{}),
		healed: make(chan struct{}),
		reset:  make(chan struct{}),
	}
}

// errCut is what a client sees of a connection that was closed under it.
var errCut = errors.New("connection closed by the link")

// callSize stands for the bytes of a request or a reply.
const callSize = 64

// Do sends one request: it calls apply, and returns nil when the reply has come.
// It returns ctx's error as soon as ctx ends, and another if the link cuts it off. If the request is on its way then, it
// arrives all the same, after Do has returned, by a call of late; so late must not
// touch what apply's caller may be using, and must be nil for requests that change
// nothing.
func (l *Link) Do(ctx context.Context, apply, late func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	up := l.depart(true)
	if up.hung != nil {
		return up.hang(ctx)
	}
	switch err := l.arrive(up, ctx.Done()); {
	case err == errLeft:
		if late != nil && !up.lost { // a lost one never arrives
			forget := l.leave(up)
			go func() {
				defer forget()
				if l.arrive(up, nil) == nil {
					late()
				}
			}()
		}
		return ctx.Err()
	case err != nil:
		return err
	}
	apply()
	up.repeat(late)
	down := l.depart(false)
	if err := down.wait(ctx.Done()); err != errLeft {
		return err
	}
	return ctx.Err()
}

// arrive waits for a request as its wait does, and for what had to arrive before it. By the clock of the machine the goroutine of
// an earlier one may be late, and what undoes it must not come before it.
func (l *Link) arrive(p *passage, left <-chan struct{}) error {
	if err := p.wait(left); err != nil {
		return err
	}
	var before []<-chan struct{}
	l.set(func() {
		for _, b := range l.behind {
			if b.arrives.Before(p.arrives) {
				before = append(before, b.over)
			}
		}
	})
	for _, over := range before {
		select {
		case <-over:
		case <-left:
			return errLeft
		}
	}
	return nil
}

// leave notes a request that its client does not wait for any more, unless it is held, and arrives when the test says so. forget
// is called once it has had its effect, or cannot have one.
func (l *Link) leave(p *passage) (forget func()) {
	if p.hold != nil {
		return func() {}
	}
	p.over = make(chan struct{})
	l.set(func() { l.behind = append(l.behind, p) })
	return func() {
		close(p.over)
		l.set(func() { l.behind = slices.DeleteFunc(l.behind, func(b *passage) bool { return b == p }) })
	}
}

// passage is one message on its way.
type passage struct {
	cut           bool
	arrives       time.Time
	hold          <-chan struct{} // nil if it is not held
	again         <-chan struct{} // its copy arrives then; nil if it has none
	hung          <-chan struct{} // its call fails then; nil if it does as it should
	lost          bool
	mended, reset <-chan struct{}
	over          chan struct{} // closed when it has arrived, or never will; of a request in behind
}

// depart decides what becomes of a message.
func (l *Link) depart(up bool) *passage {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &passage{arrives: time.Now(), mended: l.mended, reset: l.reset}
	l.bytes += callSize
	cut, lose, drop := &l.cutReply, &l.loseReply, l.dropDown
	if up {
		l.requests++
		cut, lose, drop = &l.cutRequest, &l.loseRequest, l.dropUp
		if l.fires(&l.holdIn) {
			p.hold = l.held
		}
		if l.fires(&l.repeatIn) {
			p.again = l.held
		}
		if l.fires(&l.hangIn) {
			p.hung = l.healed
		}
	}
	p.cut = l.fires(cut)
	if l.fires(lose) {
		p.lost, l.swallowed = true, true
	}
	if drop {
		l.fired++
		p.lost = true
	}
	if l.delay > 0 {
		d := l.delay / 2
		if j := l.jitter / 2; j > 0 {
			d += rand.N(2*j) - j
		}
		p.arrives = p.arrives.Add(d)
		if !l.delayed {
			l.delayed = true
			l.fired++
		}
	}
	return p
}

// errLeft says that the client has stopped waiting.
var errLeft = errors.New("the client has left")

// wait returns nil when the message has arrived. A dropped message never does; its
// client sees a closed connection once the link works again.
func (p *passage) wait(left <-chan struct{}) error {
	if p.cut {
		return errCut
	}
	if p.lost {
		select {
		case <-p.mended:
			return errCut
		case <-p.reset:
			return errCut
		case <-left:
			return errLeft
		}
	}
	if d := time.Until(p.arrives); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-p.reset:
			return errCut
		case <-left:
			return errLeft
		}
	}
	if p.hold == nil {
		return nil
	}
	select {
	case <-p.hold:
		return nil
	case <-p.reset:
		return errCut
	case <-left:
		return errLeft
	}
}

// CutReply implements netfault.Link.
func (l *Link) CutReply(k int) { l.set(func() { l.cutReply = k }) }

// CutRequest implements netfault.Link.
func (l *Link) CutRequest(k int) { l.set(func() { l.cutRequest = k }) }

// DropReply implements netfault.Link. Only the reply itself is lost, see HoldRequest.
func (l *Link) DropReply(k int) { l.set(func() { l.loseReply = k }) }

// DropRequest implements netfault.Link likewise.
func (l *Link) DropRequest(k int) { l.set(func() { l.loseRequest = k }) }

// HoldRequest implements netfault.Link. Only the request itself is held: the calls of a
// client are as good as connections of their own.
func (l *Link) HoldRequest(k int) { l.set(func() { l.holdIn = k }) }

// Release implements netfault.Link.
func (l *Link) Release() { l.set(l.release) }

func (l *Link) release() {
	l.holdIn = 0
	close(l.held)
	l.held = make(chan struct{})
}

// Drop implements netfault.Link.
func (l *Link) Drop(toServer, toClient bool) {
	l.set(func() { l.drop(toServer, toClient) })
}

func (l *Link) drop(up, down bool) {
	if l.dropUp && !up || l.dropDown && !down || l.swallowed {
		l.swallowed = false
		close(l.mended)
		l.mended = make(chan struct{})
	}
	l.dropUp, l.dropDown = up, down
}

// Delay implements netfault.Link.
func (l *Link) Delay(d, jitter time.Duration) {
	l.set(func() { l.delay, l.jitter, l.delayed = d, min(jitter, d), false })
}

// Slice implements netfault.Link. A call cannot come in pieces, so it does nothing.
func (l *Link) Slice(bool) {}

// CutAll implements netfault.Link: all calls on their way fail.
func (l *Link) CutAll() {
	l.set(func() {
		l.fired++
		l.cutAll()
	})
}

func (l *Link) cutAll() {
	close(l.reset)
	l.reset = make(chan struct{})
}

// Close is the end of the client: what is on its way is lost. Time stops in a bubble
// when its check is over, so it could not arrive any more.
func (l *Link) Close() {
	l.set(func() {
		l.closed = true
		l.cutAll()
	})
}

// Heal implements netfault.Link.
func (l *Link) Heal() {
	l.set(func() {
		l.cutReply, l.cutRequest, l.loseReply, l.loseRequest, l.repeatIn, l.hangIn = 0, 0, 0, 0, 0, 0
		close(l.healed)
		l.healed = make(chan struct{})
		l.delay, l.jitter = 0, 0
		l.drop(false, false)
		l.release()
	})
}

// Requests implements netfault.Link.
func (l *Link) Requests() (n int) { l.set(func() { n = l.requests }); return n }

// Bytes implements netfault.Link.
func (l *Link) Bytes() (n int64) { l.set(func() { n = l.bytes }); return n }

// Connections implements netfault.Link: one, and those of Dial, until the client is closed.
func (l *Link) Connections() (n int) {
	l.set(func() {
		if !l.closed {
			n = 1 + l.dialled
		}
	})
	return n
}

// Dial counts a further connection until hangUp is called, for a driver that is to be seen to open one.
func (l *Link) Dial() (hangUp func()) {
	l.set(func() { l.dialled++ })
	return func() { l.set(func() { l.dialled-- }) }
}

// Fired implements netfault.Link.
func (l *Link) Fired() (n int) { l.set(func() { n = l.fired }); return n }

func (l *Link) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// Independent says that each call is as good as a connection of its own.
func (*Link) Independent() {}
