package backends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/openurl"
)

// Config says which backend to use and how. Any loader that knows yaml or json tags, or
// encoding.TextUnmarshaler, can fill it. Printing and logging a Config hides the
// password in its URL; encoding it does not, so that it can be decoded.
//
// The settings of one backend are parameters of the URL, and are checked as strictly as the fields. Config has no fields
// for them.
type Config struct {
	// URL names the backend: scheme, servers, credentials, parameters.
	URL string `yaml:"url" json:"url"`

	// TTL is the lease of locks that do not ask for another. 0 means the TTL in the
	// URL, or the default. A different TTL in the URL is an error.
	TTL Duration `yaml:"ttl,omitempty" json:"ttl,omitempty"`

	// Holder is the text that Inspect shows; the rules are those of TTL.
	Holder string `yaml:"holder,omitempty" json:"holder,omitempty"`

	// TokenBase is added to every token: see Options.TokenBase of package distlock.
	// The rules are those of TTL.
	TokenBase int64 `yaml:"token_base,omitempty" json:"token_base,omitempty"`

	// Require lists what the backend must promise. Open fails if it does not.
	Require []Requirement `yaml:"require,omitempty" json:"require,omitempty"`
}

// The environment variables that FromEnv reads. The command reads the same.
const (
	EnvURL    = "DISTLOCK_URL"
	EnvTTL    = "DISTLOCK_TTL"
	EnvHolder = "DISTLOCK_HOLDER"
)

// FromEnv returns a Config with the URL, the TTL and the holder's text of the
// environment variables DISTLOCK_URL, DISTLOCK_TTL and DISTLOCK_HOLDER. It fails with
// distlock.ErrInvalid if there is no URL, or the TTL is no duration. The second and
// the third may be absent, and may be parameters of the URL instead.
func FromEnv() (Config, error) {
	c := Config{URL: os.Getenv(EnvURL), Holder: os.Getenv(EnvHolder)}
	if c.URL == "" {
		return Config{}, fmt.Errorf(`%w: %s is not set; set it to a URL like "redis://localhost:6379"`,
			distlock.ErrInvalid, EnvURL)
	}
	if ttl := os.Getenv(EnvTTL); ttl != "" {
		if err := c.TTL.UnmarshalText([]byte(ttl)); err != nil {
			return Config{}, fmt.Errorf("%s: %w", EnvTTL, err)
		}
	}
	return c, nil
}

// Open opens a Locker with the Default registry, as the function Open does. It also
// fails, with distlock.ErrUnsupported and before a lock can be taken, if the backend
// does not promise what Require lists.
func (c Config) Open(ctx context.Context, opts ...Option) (distlock.Locker, error) {
	return Default.Open(ctx, c, opts...)
}

// check looks at what the drivers do not see, or would take for "not given".
func (c Config) check() error {
	switch {
	case c.URL == "":
		return fmt.Errorf(`%w: the URL is empty; allowed is one like "redis://localhost:6379"`, distlock.ErrInvalid)
	case c.TTL < 0:
		return fmt.Errorf("%w: the TTL is %v, allowed is more than zero, or zero for the default", distlock.ErrInvalid, c.TTL)
	}
	if c.TokenBase < 0 {
		return fmt.Errorf("%w: the token base is %d, allowed is 0 or more", distlock.ErrInvalid, c.TokenBase)
	}
	for _, r := range c.Require {
		if _, ok := promises[r]; !ok {
			return unknownRequirement(string(r))
		}
	}
	return nil
}

// contradicts returns an error if the options that the program has set say something
// else than the configuration does. The drivers compare them with the URL.
func (c Config) contradicts(o distlock.Options) error {
	switch ttl := Duration(o.TTL); {
	case ttl < 0:
		return fmt.Errorf("%w: the TTL is %v, allowed is more than zero, or zero for the default", distlock.ErrInvalid, ttl)
	case c.TTL != 0 && ttl != c.TTL:
		return fmt.Errorf("%w: the ttl is %v in the configuration, but %v in the program's options", distlock.ErrInvalid, c.TTL, ttl)
	case c.Holder != "" && o.Holder != c.Holder:
		return fmt.Errorf("%w: the holder is %q in the configuration, but %q in the program's options", distlock.ErrInvalid, c.Holder, o.Holder)
	}
	return nil
}

// String returns the Config in one line, without a password.
func (c Config) String() string {
	s := "url="
	if c.URL != "" {
		s += openurl.Redact(c.URL)
	}
	if c.TTL != 0 {
		s += " ttl=" + c.TTL.String()
	}
	if c.Holder != "" {
		s += fmt.Sprintf(" holder=%q", c.Holder)
	}
	if c.TokenBase != 0 {
		s += fmt.Sprintf(" token_base=%d", c.TokenBase)
	}
	for i, r := range c.Require {
		if i == 0 {
			s += " require="
		} else {
			s += ","
		}
		s += string(r)
	}
	return s
}

// GoString is String for the verb %#v. Without it, %#v would show the password.
func (c Config) GoString() string { return "backends.Config{" + c.String() + "}" }

// LogValue implements slog.LogValuer, without a password.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Duration is a time.Duration, written "30s" or "1m30s" in configurations.
type Duration time.Duration

// Duration returns d as a time.Duration.
func (d Duration) Duration() time.Duration { return time.Duration(d) }

// String returns d as one writes it: "1m30s".
func (d Duration) String() string { return openurl.Short(time.Duration(d)) }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. A number without a unit is an
// error: is it seconds, or nanoseconds?
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf(`%w: %q is not a duration like "30s" or "1m30s"`, distlock.ErrInvalid, text)
	}
	*d = Duration(v)
	return nil
}

// Requirement is something that a backend promises or does not.
type Requirement string

// The requirements.
const (
	// Fair: waiters are served first come, first served, over all processes.
	Fair Requirement = "fair"
	// Push: a waiter is woken by a release, it does not poll.
	Push Requirement = "push"
	// Durable: a restart of the servers loses neither locks nor tokens.
	Durable Requirement = "durable"
	// Quorum: nor does the loss of any minority of them.
	Quorum Requirement = "quorum"
)

// promises says what fulfils a requirement.
var promises = map[Requirement]func(driver.Capabilities) bool{
	Fair:    func(c driver.Capabilities) bool { return c.Fair },
	Push:    func(c driver.Capabilities) bool { return c.Push },
	Durable: func(c driver.Capabilities) bool { return c.Durability >= driver.Restart },
	Quorum:  func(c driver.Capabilities) bool { return c.Durability >= driver.Quorum },
}

// UnmarshalText implements encoding.TextUnmarshaler: what is none of the
// requirements is an error.
func (r *Requirement) UnmarshalText(text []byte) error {
	if _, ok := promises[Requirement(text)]; !ok {
		return unknownRequirement(string(text))
	}
	*r = Requirement(text)
	return nil
}

func unknownRequirement(s string) error {
	known := make([]string, 0, len(promises))
	for r := range promises {
		known = append(known, string(r))
	}
	slices.Sort(known)
	return fmt.Errorf("%w: the requirement %q is not known, allowed are %s",
		distlock.ErrInvalid, s, strings.Join(known, ", "))
}

// unmet returns an error that completes "it ..." if l does not promise all
// of required.
func unmet(l distlock.Locker, required []Requirement) error {
	if len(required) == 0 {
		return nil
	}
	c, ok := l.(interface{ Capabilities() driver.Capabilities })
	if !ok {
		return errors.New("does not say what it promises")
	}
	caps := c.Capabilities()
	var missing []string
	for _, r := range required {
		if !promises[r](caps) {
			missing = append(missing, string(r))
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("does not promise to be %s (fair %v, push %v, durability %v)",
		strings.Join(missing, ", "), caps.Fair, caps.Push, caps.Durability)
}
