package distlock

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"
)

// Options configure a Locker. The zero value, and nil where a pointer is taken,
// mean the defaults.
type Options struct {
	// TTL is the lease of calls that do not pass their own. 0 means DefaultTTL,
	// brought within what the backend can do.
	TTL time.Duration

	// Holder is the text that Inspect shows for calls that do not pass their own;
	// MaxHolder bytes at most. Empty means host, process id and program name.
	Holder string

	// Observer is told what happens. Nil costs nothing.
	Observer *Observer

	// Logger receives what a caller cannot see from results: a lost lock, with the
	// error of the renewal that failed last, and a release or an undo that gave
	// up. Nil means no logging. Names of locks are logged, credentials never.
	Logger *slog.Logger
}

// Observer is a set of functions that a Locker calls as things happen, for metrics
// and traces; each may be nil. They are called from several goroutines, some of
// which renew other locks, so they must be quick and must not call the Locker.
type Observer struct {
	Acquired  func(Acquired)
	Contended func(Contended)
	Renewed   func(Renewed)
	Lost      func(Lost)
	Released  func(Released)
	Undone    func(Undone)
}

// Acquired reports a call of Lock or TryLock that got its lock.
type Acquired struct {
	Name  string
	Token int64
	Wait  time.Duration // from the call to the grant
	Tries int           // requests for the lock that this took, 1 if it was free
}

// Contended reports that a call found the name held: once per call of Lock, when
// it begins to wait, and once per TryLock that fails with ErrHeld.
type Contended struct {
	Name string
}

// Renewed reports a renewal in the background, or an Extend, and its outcome.
type Renewed struct {
	Name  string
	Token int64
	Took  time.Duration
	Err   error // nil if confirmed; a failed one is tried again until the deadline
}

// Lost reports a lock that ended other than by Unlock.
type Lost struct {
	Name  string
	Token int64
	Held  time.Duration // from the grant to the loss
	Cause error         // what Lock.Err returns
}

// Released reports the outcome of the release that Unlock or Close began.
type Released struct {
	Name  string
	Token int64
	Held  time.Duration // from the grant to the call of Unlock
	Took  time.Duration // from the call of Unlock to the outcome
	Err   error         // what Unlock returns, or would have if it had waited
}

// Undone reports the clean-up behind an acquisition that failed, was cancelled or
// came too late.
type Undone struct {
	Name string
	Took time.Duration
	Err  error // nil if nothing of it is left; else it ends with its TTL
}

// normalize returns o with every default filled in, or an ErrInvalid.
func (o *Options) normalize(caps Capabilities) (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if out.TTL == 0 {
		out.TTL = min(max(DefaultTTL, caps.MinTTL), caps.MaxTTL)
	}
	if err := checkTTL(out.TTL, caps); err != nil {
		return out, err
	}
	if out.Holder == "" {
		out.Holder = defaultHolder()
	}
	if err := checkHolder(out.Holder); err != nil {
		return out, err
	}
	if out.Observer == nil {
		out.Observer = new(Observer)
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out, nil
}

// limits fills in the zero values of the TTL bounds.
func (c Capabilities) limits() Capabilities {
	if c.MinTTL <= 0 {
		c.MinTTL = time.Millisecond
	}
	if c.MaxTTL <= 0 || c.MaxTTL > MaxTTL {
		c.MaxTTL = MaxTTL
	}
	if c.TTLGranularity <= 0 {
		c.TTLGranularity = time.Millisecond
	}
	return c
}

func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty, allowed are 1 to %d bytes", ErrInvalid, MaxName)
	case len(name) > MaxName:
		return fmt.Errorf("%w: the name has %d bytes, allowed are 1 to %d", ErrInvalid, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the name is not valid UTF-8", ErrInvalid)
	}
	return nil
}

func checkTTL(ttl time.Duration, caps Capabilities) error {
	if ttl < caps.MinTTL || ttl > caps.MaxTTL {
		return fmt.Errorf("%w: the TTL is %v, allowed on %s are %v to %v",
			ErrInvalid, ttl, caps.Backend, caps.MinTTL, caps.MaxTTL)
	}
	return nil
}

func checkHolder(text string) error {
	if len(text) > MaxHolder || !utf8.ValidString(text) {
		return fmt.Errorf("%w: the holder text has %d bytes, allowed are 0 to %d of valid UTF-8",
			ErrInvalid, len(text), MaxHolder)
	}
	return nil
}

// defaultHolder names this process the way an operator would look for it.
func defaultHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	text := fmt.Sprintf("%s pid %d %s", host, os.Getpid(), filepath.Base(os.Args[0]))
	for len(text) > MaxHolder || !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text
}
