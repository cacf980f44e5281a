package backends_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/testkit"
)

func TestFromEnv(t *testing.T) {
	t.Setenv(backends.EnvURL, "mem://env?ttl=5s")
	c, err := backends.FromEnv()
	if err != nil || c.URL != "mem://env?ttl=5s" {
		t.Errorf("got %v, %v", c, err)
	}
	t.Setenv(backends.EnvTTL, "7s")
	t.Setenv(backends.EnvHolder, "me")
	t.Setenv(backends.EnvURL, "mem://env")
	if c, err = backends.FromEnv(); err != nil || c.TTL.Duration() != 7*time.Second || c.Holder != "me" {
		t.Errorf("got %v, %v", c, err)
	}
	t.Setenv(backends.EnvTTL, "7")
	if _, err := backends.FromEnv(); !errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), "DISTLOCK_TTL") {
		t.Errorf("the error is %v", err)
	}
	t.Setenv(backends.EnvURL, "")
	if _, err := backends.FromEnv(); !errors.Is(err, distlock.ErrInvalid) || !strings.Contains(err.Error(), "DISTLOCK_URL is not set") {
		t.Errorf("the error is %v", err)
	}
}

// What the program says and what its configuration says must be the same.
func TestOptions(t *testing.T) {
	l := open(t, "mem://options", backends.TTL(20*time.Second), backends.Holder("me"))
	lock, err := l.TryLock(t.Context(), "x")
	testkit.Must(t, err)
	if left := time.Until(lock.Deadline()); left > 20*time.Second || left < 10*time.Second {
		t.Errorf("the lease has %v left, want about 20s", left)
	}
	if st, err := distlock.Inspect(t.Context(), l, "x"); err != nil || st.Holder != "me" {
		t.Errorf("the holder is %q, %v", st.Holder, err)
	}
	for _, tc := range []struct {
		config backends.Config
		option backends.Option
		want   string
	}{
		{backends.Config{URL: "mem://o?ttl=5s"}, backends.TTL(20 * time.Second), "the ttl is 5s, but also given as 20s"},
		{backends.Config{URL: "mem://o", TTL: backends.Duration(5 * time.Second)}, backends.TTL(20 * time.Second), "the ttl is 5s in the configuration, but 20s"},
		{backends.Config{URL: "mem://o", Holder: "me"}, backends.Holder("you"), `the holder is "me" in the configuration, but "you"`},
		{backends.Config{URL: "mem://o"}, backends.TTL(-1), "the TTL is -1ns"},
	} {
		_, err := tc.config.Open(t.Context(), tc.option)
		wantError(t, err, distlock.ErrInvalid, tc.want)
	}
}

func TestConfigText(t *testing.T) {
	want := backends.Config{
		URL:     "mem://config",
		TTL:     backends.Duration(90 * time.Second),
		Holder:  "billing",
		Require: []backends.Requirement{backends.Fair, backends.Push},
	}
	decoders := map[string]func([]byte, any) error{"yaml": yaml.Unmarshal, "json": json.Unmarshal}
	for text, format := range map[string]string{
		"url: mem://config\nttl: 1m30s\nholder: billing\nrequire: [fair, push]\n":                "yaml",
		`{"url":"mem://config","ttl":"1m30s","holder":"billing","require":["fair","push"]}`:      "json",
		`{"url": "mem://config", "ttl": "90s", "holder": "billing", "require": ["fair","push"]}`: "json",
	} {
		var got backends.Config
		if err := decoders[format](([]byte)(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nis %v, %v", text, got, err)
		}
	}
	for text, format := range map[string]string{
		"ttl: 30":              "yaml",
		"ttl: 30 seconds":      "yaml",
		"require: [fast]":      "yaml",
		`{"ttl": "30"}`:        "json",
		`{"ttl": 30}`:          "json",
		`{"require":["fast"]}`: "json",
	} {
		if err := decoders[format]([]byte(text), new(backends.Config)); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
	for name, encode := range map[string]func(any) ([]byte, error){"yaml": yaml.Marshal, "json": json.Marshal} {
		text, err := encode(want)
		testkit.Must(t, err)
		var got backends.Config
		if err := decoders[name](text, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s came back as %v, %v", text, got, err)
		}
	}
	if l, err := want.Open(t.Context()); err != nil {
		t.Error(err)
	} else {
		l.Close()
	}
	_, err := backends.Config{URL: "mem://", TTL: -1}.Open(t.Context())
	wantError(t, err, distlock.ErrInvalid, "the TTL is -1ns")
}

// Configurations are logged when programs start.
func TestPrintingConfigHidesPassword(t *testing.T) {
	c := backends.Config{
		URL: "redis://me:" + password + "@h", TTL: backends.Duration(time.Minute), Holder: "x",
		Require: []backends.Requirement{"fair", "push"},
	}
	if got, want := c.String(), `url=redis://me:xxxxx@h ttl=1m holder="x" require=fair,push`; got != want {
		t.Errorf("String is %s, want %s", got, want)
	}
	if got := (backends.Config{}).String(); got != "url=" {
		t.Errorf("String of nothing is %s", got)
	}
	var printed strings.Builder
	for _, v := range []any{c, &c, struct{ C backends.Config }{c}, []backends.Config{c}} {
		fmt.Fprintf(&printed, "%v %+v %#v %s %q\n", v, v, v, v, v)
	}
	slog.New(slog.NewJSONHandler(&printed, nil)).Info("config", "c", c)
	slog.New(slog.NewTextHandler(&printed, nil)).Info("config", "c", c)
	if strings.Contains(printed.String(), password) {
		t.Error(printed.String())
	}
}
