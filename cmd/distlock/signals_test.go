package main

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A signal that comes between the grant and the start of the command was meant to end
// what has not begun; nobody would pass it on any more.
func TestSignalBeforeTheCommand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	i := &interrupts{cancel: cancel}
	i.deliver(syscall.SIGTERM)
	i.deliver(syscall.SIGTERM) // timeout(1) does, and the process must stay to tidy up
	if ctx.Err() == nil || i.passOn() != nil || i.exit().status != 143 {
		t.Errorf("context %v, exit %+v", ctx.Err(), i.exit())
	}
}

// What a command under a lock gets does not end the context; what comes after it does.
func TestSignalsArePassedOn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	i := &interrupts{cancel: cancel}
	received := i.passOn()
	i.deliver(syscall.SIGTERM)
	if s := <-received; s != syscall.SIGTERM || ctx.Err() != nil || i.ended() {
		t.Errorf("received %v, context %v", s, ctx.Err())
	}
	i.takeBack()
	i.deliver(syscall.SIGINT)
	if e := i.exit(); ctx.Err() == nil || !e.interrupted || e.status != 130 {
		t.Errorf("context %v, exit %+v", ctx.Err(), e)
	}
}

// timeout(1) sends its signal to the process and to its group: the command gets it once. One that comes later is a second one.
func TestPairIsOneSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &interrupts{cancel: func() {}}
		received := i.passOn()
		i.deliver(syscall.SIGTERM)
		i.deliver(syscall.SIGTERM)
		time.Sleep(pairWithin)
		i.deliver(syscall.SIGTERM)
		if len(received) != 2 {
			t.Errorf("the command gets %d signals, want 2", len(received))
		}
	})
}
