package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts delivers signals to whoever is in charge: until a command runs under a
// lock they end the context; from then on they are passed on to it.
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
		if i.first == nil {
			i.first = s
		}
		i.cancel()
	}
}

// passOn sends signals to the returned channel from now on.
func (i *interrupts) passOn() <-chan os.Signal {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forward = make(chan os.Signal, 16)
	return i.forward
}

// status returns 128+n for the signal that has ended the context, 0 if none has.
func (i *interrupts) status() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s, ok := i.first.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return 0
}
