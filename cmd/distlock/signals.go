package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts delivers signals to whoever is in charge: a command that runs under a
// lock gets them passed on; before and after, the first ends the context, and the
// second this process, should something not care for the context.
type interrupts struct {
	received chan os.Signal
	cancel   context.CancelFunc

	mu      sync.Mutex
	first   os.Signal
	forward chan os.Signal
}

func interruptible(ctx context.Context) (context.Context, *interrupts) {
	ctx, cancel := context.WithCancel(ctx)
	i := &interrupts{received: make(chan os.Signal, 16), cancel: cancel}
	signal.Notify(i.received, passedOn...)
	go func() {
		for s := range i.received {
			i.deliver(s)
		}
	}()
	return ctx, i
}

func (i *interrupts) deliver(s os.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.forward != nil:
		select {
		case i.forward <- s:
		default: // sixteen signals wait already; one more says nothing new
		}
	case s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP:
		if i.first != nil {
			os.Exit(128 + int(s.(syscall.Signal)))
		}
		i.first = s
		i.cancel()
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
