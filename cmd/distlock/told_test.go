package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// closing is a Locker that can only be closed.
type closing struct {
	distlock.Locker
	close func()
}

func (c closing) Close() error { c.close(); return nil }

// Close waits for a server that does not answer; the user does not.
func TestErrorIsToldBeforeClose(t *testing.T) {
	var text bytes.Buffer
	defer func(before *masked) { stderr = before }(stderr)
	stderr = &masked{&text, given.message}
	closed := false
	err := tellAndClose(closing{close: func() {
		if closed = true; !strings.Contains(text.String(), "no answer") {
			t.Error("nothing was told before Close")
		}
	}}, &exit{status: statusUnavailable, err: errors.New("no answer")})
	if e := exitOf(err); !closed || e.status != statusUnavailable || e.err != nil {
		t.Errorf("closed %v; the exit is %+v", closed, e)
	}
}

// The hint is for servers that have not answered.
func TestHint(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, err := range []error{dial, fmt.Errorf("zk: %w", dial), &driver.NoAnswer{From: "h:1"}, context.DeadlineExceeded, &net.DNSError{Name: "h", Err: "no such host"}} {
		if !strings.Contains(withHint(err).Error(), "is the server up") {
			t.Errorf("%v: without a hint", err)
		}
	}
	for _, text := range []string{"Error 1045 (28000): Access denied for user 'me'@'localhost'", "the table nope does not exist; create=true in the URL creates it",
		"h:5432 (h): failed SASL auth: FATAL: password authentication failed", "WRONGPASS invalid username-password pair"} {
		if err := errors.New(text); withHint(err) != err {
			t.Errorf("%v: with a hint", err)
		}
	}
}

// TestRefused: a name that was held is busy; if the store has failed since, that is what went wrong.
func TestRefused(t *testing.T) {
	held := &distlock.HeldError{Holder: "x"}
	for status, err := range map[int]error{
		statusBusy:        fmt.Errorf("%w: %w", context.DeadlineExceeded, held),
		statusUnavailable: fmt.Errorf("%w: %w", context.DeadlineExceeded, fmt.Errorf("%w: since then: %w", held, io.EOF)),
	} {
		o := &runOptions{busy: statusBusy, wait: time.Second}
		err = &distlock.Error{Op: "lock", Name: "x", Err: err}
		if got := exitOf(o.refused(&backend{url: "redis://localhost"}, "x", err)); got.status != status {
			t.Errorf("%v: exit status %d, want %d", err, got.status, status)
		}
	}
}
