package driver

import (
	"context"
	"sync"
	"time"
)

// maxPending is how many claims of one name may be pending. Callers that keep trying a
// stuck name would otherwise pile up requests and clean-ups, until they have taken the
// connections of all other names.
const maxPending = 8

// pending counts, per name, the claims with an unknown outcome: from the first Try until
// its answer, and if the attempt has failed, until the clean-up has ended. A claim waiting
// for a holder is one of them.
//
// It refuses nobody while the store answers: a claim too many waits, in its order,
// for as long as earlier ones are answered.
type pending struct {
	mu    sync.Mutex
	names map[string]*pendingName // those with a claim that counts, or waits to
	spare *pendingName            // the last one that ended: most names have one claim, for a moment
}

type pendingName struct {
	slots    chan struct{} // one element for each claim that counts; senders that wait are served in their order
	users    int           // claims that count or wait
	answered time.Time     // when the store has answered a claim last
}

// begin counts a claim of name, as soon as there are few enough. It reports false if
// ctx ends before, quit is closed, or the store has answered none for patience.
func (p *pending) begin(ctx context.Context, quit <-chan struct{}, name string, patience time.Duration) bool {
	n := p.join(name)
	select {
	case n.slots <- struct{}{}:
		return true
	default:
	}
	began := time.Now()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for left := patience; left > 0; {
		select {
		case n.slots <- struct{}{}:
			return true
		case <-ctx.Done():
			left = 0
		case <-quit:
			left = 0
		case <-timer.C:
			left = patience - min(time.Since(began), p.silence(n))
			timer.Reset(left)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(name, n)
	return false
}

func (p *pending) join(name string) *pendingName {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil {
		p.names = make(map[string]*pendingName)
	}
	n := p.names[name]
	if n == nil {
		if n = p.spare; n == nil {
			n = &pendingName{slots: make(chan struct{}, maxPending)}
		}
		p.spare = nil
		p.names[name] = n
	}
	n.users++
	return n
}

// silence is how long the store has answered no claim of a name.
func (p *pending) silence(n *pendingName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(n.answered)
}

// end ends what begin has counted; answered says whether the store has answered it.
func (p *pending) end(name string, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.names[name]
	if answered {
		n.answered = time.Now()
	}
	<-n.slots
	p.leave(name, n)
}

// leave ends what join has begun; p.mu is held.
func (p *pending) leave(name string, n *pendingName) {
	if n.users--; n.users == 0 {
		delete(p.names, name)
		n.answered = time.Time{}
		p.spare = n
	}
}
