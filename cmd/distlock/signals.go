package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"
)

// interrupts delivers signals. A command that runs under a lock gets them passed on.
// Before and after, the first one that ends programs ends the context, and a later one
// this process, should something not care for the context. One that comes again within repeatWithin
// is the same: timeout(1) sends its own to the process and to the group.
type interrupts struct {
	received chan os.Signal
	cancel   context.CancelFunc

	mu      sync.Mutex
	first   os.Signal
	last    os.Signal // that was forwarded
	at      time.Time // of the first, or of that
	passed  bool      // SIGINT was forwarded
	forward chan os.Signal
}

const (
	repeatWithin = time.Second

	// pairWithin is for how long a signal that is passed on is the same: programs take a second one for "at once".
	pairWithin = 100 * time.Millisecond
)

func interruptible(ctx context.Context) (context.Context, *interrupts) {
	ctx, cancel := context.WithCancel(ctx)
	i := &interrupts{received: make(chan os.Signal, 16), cancel: cancel}
	if heeded := heededSignals(); len(heeded) > 0 { // Notify without any means all
		signal.Notify(i.received, heeded...)
	}
	go func() {
		for s := range i.received {
			i.deliver(s)
		}
	}()
	return ctx, i
}

// heededSignals are those to ask for. A signal ignored when this program began stays
// ignored, also by the command that it runs, as with any program under nohup(1).
//
// The Go runtime tells of an ignored SIGINT and SIGHUP only. But a shell without job
// control ignores SIGQUIT together with SIGINT in what it starts in the background.
func heededSignals() []os.Signal {
	if len(quitting) > 0 && signal.Ignored(syscall.SIGINT) {
		signal.Ignore(quitting...)
	}
	return slices.DeleteFunc(slices.Clone(passedOn), signal.Ignored)
}

func (i *interrupts) deliver(s os.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.forward != nil && s == i.last && slices.Contains(ending, s) && time.Since(i.at) < pairWithin:
	case i.forward != nil:
		i.last, i.at = s, time.Now()
		i.passed = i.passed || s == syscall.SIGINT
		select {
		case i.forward <- s:
		default: // sixteen signals wait already; one more says nothing new
		}
	case !slices.Contains(ending, s):
	case i.first == nil:
		i.first, i.at = s, time.Now()
		i.cancel()
	case s != i.first || time.Since(i.at) > repeatWithin:
		os.Exit(128 + int(s.(syscall.Signal)))
	}
}

// passOn sends signals to the returned channel, until takeBack. It is nil if one has
// come already: what it was meant to end must not begin.
func (i *interrupts) passOn() <-chan os.Signal {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.first != nil {
		return nil
	}
	i.forward = make(chan os.Signal, 16)
	return i.forward
}

// takeBack has signals end the context again.
func (i *interrupts) takeBack() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forward = nil
}

// passedInterrupt reports whether SIGINT was passed on.
func (i *interrupts) passedInterrupt() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.passed
}

// ended reports whether a signal has ended the context.
func (i *interrupts) ended() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.first != nil
}

// exit returns what the process exits with after the signal that ended the context.
func (i *interrupts) exit() *exit {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := &exit{status: statusFailed}
	if s, ok := i.first.(syscall.Signal); ok {
		e.status, e.interrupted = 128+int(s), s == syscall.SIGINT
	}
	return e
}
