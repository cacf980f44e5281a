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
	"github.com/distlock-go/distlock/internal/openurl"
)

// Config says which backend to use and how. Any loader that knows yaml or json
// tags, or encoding.TextUnmarshaler, can fill it. Printing and logging a Config
// hides the password in its URL; encoding it does not, so that it can be decoded.
//
// What belongs to one backend is a parameter of the URL, and is checked as
// strictly as the fields are. It has no second home in fields of its own.
type Config struct {
	// URL names the backend: scheme, servers, credentials, parameters.
	URL string `yaml:"url" json:"url"`

	// TTL is the lease of locks that do not ask for another. 0 means what the URL
	// says, or the default. A TTL in the URL that is not the same is an error.
	TTL Duration `yaml:"ttl,omitempty" json:"ttl,omitempty"`

	// Holder is the text that Inspect shows; the rules are those of TTL.
	Holder string `yaml:"holder,omitempty" json:"holder,omitempty"`

	// Require lists what the backend must promise. Open fails if it does not.
	Require []Requirement `yaml:"require,omitempty" json:"require,omitempty"`
}

// EnvURL is the environment variable that FromEnv reads.
const EnvURL = "DISTLOCK_URL"

// FromEnv returns a Config with the URL of the environment variable DISTLOCK_URL,
// which can say all but Require: ttl and holder are parameters of every URL. It
// fails with distlock.ErrInvalid if that is not set, or empty.
func FromEnv() (Config, error) {
	url := os.Getenv(EnvURL)
	if url == "" {
		return Config{}, fmt.Errorf(`%w: %s is not set; set it to a URL like "redis://localhost:6379"`,
			distlock.ErrInvalid, EnvURL)
	}
	return Config{URL: url}, nil
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
	for _, r := range c.Require {
		if _, ok := promises[r]; !ok {
			return unknownRequirement(string(r))
		}
	}
	return nil
}

// String returns the Config in one line, without a password.
func (c Config) String() string {
	s := "url=" + openurl.Redact(c.URL)
	if c.TTL != 0 {
		s += " ttl=" + c.TTL.String()
	}
	if c.Holder != "" {
		s += fmt.Sprintf(" holder=%q", c.Holder)
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

// GoString is String for the verb %#v, which would otherwise show the password.
func (c Config) GoString() string { return "backends.Config{" + c.String() + "}" }

// LogValue implements slog.LogValuer, without a password.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Duration is a time.Duration that is written "30s" or "1m30s" in configurations.
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
var promises = map[Requirement]func(distlock.Capabilities) bool{
	Fair:    func(c distlock.Capabilities) bool { return c.Fair },
	Push:    func(c distlock.Capabilities) bool { return c.Push },
	Durable: func(c distlock.Capabilities) bool { return c.Durability >= distlock.Restart },
	Quorum:  func(c distlock.Capabilities) bool { return c.Durability >= distlock.Quorum },
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

// unmet returns an error that completes "the backend ..." if l does not promise all
// of required.
func unmet(l distlock.Locker, required []Requirement) error {
	if len(required) == 0 {
		return nil
	}
	c, ok := l.(interface{ Capabilities() distlock.Capabilities })
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
