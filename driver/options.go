package driver

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/distlock-go/distlock"
)

// normalize returns o with every default filled in, or an ErrInvalid.
func normalize(o *distlock.Options, caps Capabilities) (_ distlock.Options, err error) {
	defer func() {
		if err != nil {
			err = opError("open", "", err)
		}
	}()
	var out distlock.Options
	if o != nil {
		out = *o
	}
	if out.TTL == 0 {
		out.TTL = min(max(distlock.DefaultTTL, caps.MinTTL), caps.MaxTTL)
	}
	// A TTL beyond caps.MaxTTL is for each call to judge: only a fixed term needs
	// all of it.
	if err := checkTTL(out.TTL, distlock.MaxTTL, caps); err != nil {
		return out, err
	}
	if out.TokenBase < 0 {
		return out, fmt.Errorf("%w: the token base is %d, allowed is 0 or more", distlock.ErrInvalid, out.TokenBase)
	}
	if out.Holder == "" {
		out.Holder = defaultHolder()
	}
	if err := checkHolder(out.Holder); err != nil {
		return out, err
	}
	if out.Observer == nil {
		out.Observer = new(distlock.Observer)
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
	if c.MaxTTL <= 0 || c.MaxTTL > distlock.MaxTTL {
		c.MaxTTL = distlock.MaxTTL
	}
	if c.TTLGranularity <= 0 {
		c.TTLGranularity = time.Millisecond
	}
	return c
}

func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty, allowed are 1 to %d bytes", distlock.ErrInvalid, distlock.MaxName)
	case len(name) > distlock.MaxName:
		return fmt.Errorf("%w: the name has %d bytes, allowed are 1 to %d", distlock.ErrInvalid, len(name), distlock.MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the name is not valid UTF-8", distlock.ErrInvalid)
	}
	return nil
}

// checkTTL refuses a TTL below what the backend can do or above longest.
func checkTTL(ttl, longest time.Duration, caps Capabilities) error {
	if ttl < caps.MinTTL || ttl > longest {
		return fmt.Errorf("%w: the TTL is %v, allowed on %s is %v to %v",
			distlock.ErrInvalid, ttl, caps.Backend, caps.MinTTL, longest)
	}
	return nil
}

// lease returns the TTL to ask the driver for. A renewed lock loses nothing by a shorter
// lease than it asked for, so it gets the longest that the backend can promise; a fixed
// term would end too early, and is refused.
func (c *Client) lease(ttl time.Duration, fixed bool) (time.Duration, error) {
	longest := c.caps.MaxTTL
	if fixed {
		if err := checkTTL(ttl, longest, c.caps); err != nil {
			return 0, fmt.Errorf("%w for a lock that is not renewed", err)
		}
		return ttl, nil
	}
	if err := checkTTL(ttl, distlock.MaxTTL, c.caps); err != nil {
		return 0, err
	}
	if ttl > longest {
		// No sync.Once: others would wait for a handler that hangs, and one that takes a lock for itself.
		if c.lowered.CompareAndSwap(false, true) {
			c.opts.Logger.Info("TTL lowered to the longest that the backend can promise", "backend", c.caps.Backend,
				"asked", ttl, "granted", longest)
		}
		return longest, nil
	}
	return ttl, nil
}

func checkHolder(text string) error {
	switch {
	case len(text) > distlock.MaxHolder:
		return fmt.Errorf("%w: the holder text has %d bytes, allowed are 0 to %d", distlock.ErrInvalid, len(text), distlock.MaxHolder)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: the holder text is not valid UTF-8", distlock.ErrInvalid)
	}
	return nil
}

// newOwner returns 128 random bits. The owner belongs to one acquisition alone:
// an owner per process, host or session is how other libraries free or renew
// what a later acquisition of the same process holds.
func newOwner() string {
	var b [16]byte
	var text [2 * len(b)]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	hex.Encode(text[:], b[:])
	return string(text[:])
}

// defaultHolder names this process the way an operator would look for it.
func defaultHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	text := fmt.Sprintf("%s pid %d %s", host, os.Getpid(), filepath.Base(os.Args[0]))
	for len(text) > distlock.MaxHolder || !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text
}
