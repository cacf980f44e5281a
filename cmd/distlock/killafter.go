package main

import (
	"fmt"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/openurl"
)

// checkKillAfter refuses what no lease of the TTL allows.
func (o *runOptions) checkKillAfter(ttl time.Duration) error {
	if longest := ttl / 3; o.killAfter > longest {
		return usage(fmt.Errorf("--kill-after is %v, allowed with this TTL is up to %v: one renewal that fails must not end the command",
			o.killAfter, longest.Round(time.Millisecond)))
	}
	return nil
}

// longestTTL returns the most that the configuration can mean. What is wrong in the URL is
// reported when the URL is opened.
func longestTTL(c backends.Config) time.Duration {
	if c.TTL > 0 {
		return c.TTL.Duration()
	}
	u, err := openurl.Parse(c.URL)
	if err != nil {
		return distlock.MaxTTL
	}
	ttl := u.Duration("ttl", distlock.DefaultTTL, time.Millisecond, distlock.MaxTTL)
	if ttl < time.Millisecond {
		return distlock.MaxTTL
	}
	return ttl
}

// fitLease fits --kill-after to the lease that was granted: somewhat shorter than the TTL, and on
// ZooKeeper as short as a session has it.
func (o *runOptions) fitLease(graceSet bool, lease time.Duration) {
	switch {
	case lease <= 0: // this process has slept since: nothing will be started
	case !graceSet:
		o.killAfter = min(lease/6, 10*time.Second)
	case o.killAfter > lease/3:
		if o.verbose || o.killAfter > lease*2/5 { // less is what the grant took
			say("--kill-after is %v with the lease that was granted", (lease / 3).Round(time.Millisecond))
		}
		o.killAfter = lease / 3
	}
}
