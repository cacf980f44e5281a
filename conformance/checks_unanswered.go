package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
)

// unanswered asks over a link that loses what is sent, or the reply.
func unanswered(s *scene) {
	if s.needs == capNamespaces {
		return // the link is of another
	}
	p := s.openVia(fmt.Sprint("E", s.n))
	for _, f := range []struct {
		what string
		arm  func()
		all  bool // nothing comes back
	}{
		{"a reply is lost", func() { p.link.CutReply(1) }, false},
		{"nothing passes", func() { p.link.Drop(true, true) }, true},
		{"no reply passes", func() { p.link.Drop(false, true) }, true},
	} {
		for op, ask := range map[string]func(context.Context) (nothing bool, err error){
			"Inspect": func(ctx context.Context) (bool, error) { st, err := p.inspect(ctx, s.name); return !st.Held, err },
			"List":    func(ctx context.Context) (bool, error) { all, err := p.listed(ctx, s.name); return len(all) == 0, err },
			"Sweep":   func(ctx context.Context) (bool, error) { _, err := p.sweepIdle(ctx, time.Hour); return f.all, err },
		} {
			s.warm(p)
			f.arm()
			s.mustBeUnknown(op, f.what, f.all, ask)
			p.link.Heal()
		}
	}
	s.warm(p)
	p.link.Drop(false, true)
	s.mustBeUnknown("Break", "no reply passes", true, func(ctx context.Context) (bool, error) { return true, p.breakHold(ctx, s.name, s.h.Token()) })
	p.link.Heal()
	s.brokenUnheard(p)
}

// brokenUnheard breaks the locks of other names with a Break of which a message is lost. Such a call must not say that
// there was no hold: it may have ended it itself. Nor must it say that it has ended it, and have not.
func (s *scene) brokenUnheard(p *client) {
	for _, f := range []struct {
		what string
		arm  func(int)
	}{{"reply", p.link.CutReply}, {"request", p.link.CutRequest}} {
		h := s.gets("N1", s.b, s.Name("unheard "+f.what+" "+s.what), "which is fresh", distlock.TTL(s.long()))
		s.warm(p)
		f.arm(1)
		ctx, cancel := s.patiently()
		err := p.breakHold(ctx, h.Name(), h.Token())
		cancel()
		p.link.Heal()
		switch {
		case errors.Is(err, distlock.ErrLost):
			s.breach("O2", "B held %q with token %d, and nobody else touched it; %s broke it with that token, the %s was lost, and Break said for certain that there was no such hold: %v: it was its own doing, or the hold is there still",
				h.Name(), h.Token(), p.who, f.what, err)
		case err == nil && s.third.try(h.Name(), distlock.NoRenewal()).busy():
			s.breach("O2", "B held %q with token %d; %s broke it with that token, the %s was lost, and Break returned nil, but the name is held still", h.Name(), h.Token(), p.who, f.what)
		}
		_ = h.unlock() // nil, or ErrLost if it was broken
	}
}

// mustBeUnknown asks for something whose answer is lost; silent is whether none can come.
func (s *scene) mustBeUnknown(op, what string, silent bool, ask func(context.Context) (nothing bool, err error)) {
	ctx, cancel := context.WithTimeout(s.ctx, s.ttl/8)
	defer cancel()
	switch nothing, err := ask(ctx); {
	case errors.Is(err, distlock.ErrUnsupported):
	case err == nil && (nothing || silent) && s.h.Err() == nil:
		s.breach(clauseOf[op], "A holds %q; B called %s while %s, which returned no error, as if it had heard that all is in order, or that nobody holds the name", s.name, op, what)
	case errors.Is(err, distlock.ErrLost), errors.Is(err, distlock.ErrHeld):
		s.breach(clauseOf[op], "A holds %q; B called %s while %s, and was told %q: the store has said nothing of the kind", s.name, op, what, err)
	}
}

// clauseOf says which clause an operation of operators is about.
var clauseOf = map[string]string{"Inspect": "O1", "List": "O1", "Break": "O2", "Sweep": "O4"}
