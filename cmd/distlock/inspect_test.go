package main

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
)

// Status 0 says that the name is held: an inspect that was interrupted does not know that. A watch ends by that.
func TestInspectInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	look := func(ctx context.Context) ([]distlock.Status, error) { return nil, ctx.Err() }
	var out bytes.Buffer
	if err := new(backend).watch(ctx, &out, look, showTable, true, false, time.Second); !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("once: %v, %q", err, &out)
	}
	if err := new(backend).watch(ctx, &out, look, showTable, true, true, time.Second); err != nil || out.Len() > 0 {
		t.Errorf("watch: %v, %q", err, &out)
	}
}
