package backends_test

import (
	"encoding/json"
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/testkit"
)

// The token base of the URL and of a Config are one and the same.
func TestTokenBase(t *testing.T) {
	var c backends.Config
	testkit.Must(t, json.Unmarshal([]byte(`{"url": "mem://token-base", "token_base": 1000}`), &c))
	byConfig, err := c.Open(t.Context())
	testkit.Must(t, err)
	defer byConfig.Close()
	for i, l := range []distlock.Locker{byConfig, open(t, "mem://token-base?token_base=1000")} {
		lock, err := l.TryLock(t.Context(), "x")
		testkit.Must(t, err)
		if want := int64(1001 + i); lock.Token() != want {
			t.Errorf("token %d, want %d", lock.Token(), want)
		}
		testkit.Should(t, lock.Unlock(t.Context()))
	}
	for _, bad := range []backends.Config{
		{URL: "mem://?token_base=-1"},
		{URL: "mem://?token_base=9223372036854775808"},
		{URL: "mem://?token_base=7", TokenBase: 8},
		{URL: "mem://?token_base=0", TokenBase: 8},
		{URL: "mem://", TokenBase: -1},
	} {
		_, err := bad.Open(t.Context())
		wantError(t, err, distlock.ErrInvalid, "token")
	}
	if got, want := c.String(), "url=mem://token-base token_base=1000"; got != want {
		t.Errorf("the Config is printed as %q, want %q", got, want)
	}
}
