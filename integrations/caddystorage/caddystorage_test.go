package caddystorage

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	"github.com/caddyserver/certmagic"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/integrations/certmagiclock"
)

func TestCaddyfile(t *testing.T) {
	for text, want := range map[string]string{
		"distlock redis://a": `{"module":"distlock","url":"redis://a"}`,
		"distlock redis://a {\n storage file_system /b\n}":             `{"module":"distlock","storage":{"module":"file_system","root":"/b"},"url":"redis://a"}`,
		"distlock redis://a {\n storage file_system {\n root /b\n}\n}": `{"module":"distlock","storage":{"module":"file_system","root":"/b"},"url":"redis://a"}`,
		"distlock":                              "",
		"distlock a b":                          "",
		"distlock a {\n nonsense\n}":            "",
		"distlock a {\n storage\n}":             "",
		"distlock a {\n storage nonsense\n}":    "",
		"distlock a {\n storage file_system\n}": "",
		"distlock a {\n storage file_system /b\n storage file_system /c\n}": "",
	} {
		got, err := parse(text)
		if (err != nil) != (want == "") || string(got) != want {
			t.Errorf("%q: got %s, %v, want %s", text, got, err, want)
		}
	}
}

// parse returns what Caddy makes of the option storage in a Caddyfile.
func parse(text string) (json.RawMessage, error) {
	d := caddyfile.NewTestDispenser(text)
	d.Next()
	module, err := caddyfile.UnmarshalModule(d, "caddy.storage.distlock")
	if err != nil {
		return nil, err
	}
	return caddyconfig.JSONModuleObject(module, "module", "distlock", nil), nil
}

// run has this process run a Caddy with the storage, and returns what it stores by. It does
// nothing but that: no ports, no files of its own.
func run(text string) (certmagic.Storage, error) {
	storage, err := parse(text)
	if err != nil {
		return nil, err
	}
	never := false
	err = caddy.Run(&caddy.Config{
		Admin:      &caddy.AdminConfig{Disabled: true, Config: &caddy.ConfigSettings{Persist: &never}},
		Logging:    &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{Level: "ERROR"}}}},
		StorageRaw: storage,
	})
	if err != nil {
		return nil, err
	}
	return caddy.ActiveContext().Storage(), nil
}

// A certificate that is being issued keeps its lock when Caddy loads a new configuration.
// It is a lock of the backend, and nothing is held when Caddy has stopped.
func TestReload(t *testing.T) {
	t.Setenv("CADDYSTORAGE_URL", "mem://reload")
	text := fmt.Sprintf("distlock {env.CADDYSTORAGE_URL} {\n storage file_system %q\n}", filepath.ToSlash(t.TempDir()))
	old, err := run(text)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = caddy.Stop() })
	if err := old.Store(t.Context(), "a", []byte("kept")); err != nil {
		t.Error(err)
	}
	if err := old.Lock(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	other, err := backends.Open(t.Context(), "mem://reload")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if st, err := distlock.Inspect(t.Context(), other, certmagiclock.Prefix+"a"); err != nil || !st.Held {
		t.Errorf("the lock is not on the backend: %+v, %v", st, err)
	}
	fresh, err := run(text)
	if err != nil {
		t.Fatal(err)
	}
	if stored, err := fresh.Load(t.Context(), "a"); err != nil || string(stored) != "kept" {
		t.Errorf("loaded %q, %v", stored, err)
	}
	if ok, err := fresh.(certmagic.TryLocker).TryLock(t.Context(), "a"); ok || err != nil {
		t.Errorf("a lock of the old configuration was taken by the new one: %v, %v", ok, err)
	}
	if err := old.(certmagic.LockLeaseRenewer).RenewLockLease(t.Context(), "a", time.Minute); err != nil {
		t.Error(err)
	}
	if err := old.Unlock(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := fresh.Lock(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Stop(); err != nil {
		t.Fatal(err)
	}
	if lock, err := other.TryLock(t.Context(), certmagiclock.Prefix+"a"); err != nil {
		t.Errorf("Caddy has stopped, and has the lock: %v", err)
	} else if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// A backend that is none is told of when Caddy starts.
func TestBadURL(t *testing.T) {
	if _, err := run("distlock nonsense://a"); err == nil {
		t.Error("Caddy runs without its locks")
	}
	if _, err := (&Storage{}).CertMagicStorage(); err == nil || errors.Is(err, distlock.ErrLost) {
		t.Errorf("a module that was not provisioned: %v", err)
	}
	if n, ok := lockers.References("nonsense://a"); ok {
		t.Errorf("%d users of what could not be opened", n)
	}
}
