package distlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/distlock-go/distlock"
)

// An error names the lock, but a name that is no name is not repeated whole.
func TestErrorOfALongName(t *testing.T) {
	l := locker()
	defer l.Close()
	_, err := l.TryLock(context.Background(), strings.Repeat("ü", 5000))
	if !errors.Is(err, distlock.ErrInvalid) {
		t.Fatal(err)
	}
	if text := err.Error(); len(text) > 400 || !strings.Contains(text, "10000") {
		t.Errorf("the error is %q", text)
	}
}
