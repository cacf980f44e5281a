package main

import (
	"errors"
	"testing"

	"github.com/distlock-go/distlock"
)

// The program of the README runs, and fails clearly without a URL.
func TestRun(t *testing.T) {
	if err := run(t.Context(), "mem://quickstart"); err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), ""); !errors.Is(err, distlock.ErrInvalid) {
		t.Errorf("the error is %v, want ErrInvalid", err)
	}
}
