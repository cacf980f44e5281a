package main

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
)

// TestWatchOutlastsAFailure: a look that fails, as beside a failover, does not end a watch.
func TestWatchOutlastsAFailure(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	looks := 0
	look := func(context.Context) ([]distlock.Status, error) {
		switch looks++; looks {
		case 2, 3:
			return nil, errors.New("connection refused")
		case 5:
			interrupt()
		}
		return []distlock.Status{{Name: "job"}}, nil
	}
	var out bytes.Buffer
	if err := new(backend).watch(ctx, &out, look, showTable, true, true, time.Millisecond); err != nil || looks != 5 {
		t.Errorf("%d looks: %v", looks, err)
	}
	if got := bytes.Count(out.Bytes(), []byte("job")); got != 2 {
		t.Errorf("shown %d times, want at first and when it answers again:\n%s", got, &out)
	}
}

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
