package virtual

import "context"

// The faults of calls without an equivalent on a wire.

// Repeat arms a fault: the k-th request from now arrives twice, as if the client
// library had sent it again after a timeout. The copy arrives when Release or Heal is
// called, whatever has happened in between; nobody hears its answer.
func (l *Link) Repeat(k int) { l.set(func() { l.repeatIn = k }) }

// Hang arms a fault: the k-th request from now is never answered. Its call fails when its
// context ends, or at Heal; the request is never sent.
func (l *Link) Hang(k int) { l.set(func() { l.hangIn = k }) }

// fires counts an armed fault down and reports whether it takes effect.
func (l *Link) fires(in *int) bool {
	if *in == 0 {
		return false
	}
	if *in--; *in > 0 {
		return false
	}
	l.fired++
	return true
}

// repeat has a request arrive a second time.
func (p *passage) repeat(late func()) {
	if p.again == nil || late == nil {
		return
	}
	go func() {
		select {
		case <-p.again:
			late()
		case <-p.reset:
		}
	}()
}

// hang returns the error of a call that hangs, when it may fail.
func (p *passage) hang(ctx context.Context) error {
	select {
	case <-p.hung:
	case <-p.reset:
	case <-ctx.Done():
		return ctx.Err()
	}
	return errCut
}
