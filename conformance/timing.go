package conformance

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// Timing declares what a driver needs time for. The suite judges by these bounds
// and fails a driver that exceeds its own; it reports how near it came.
type Timing struct {
	// MinTTL is the shortest TTL that the driver accepts.
	MinTTL time.Duration `json:"min_ttl"`

	// MaxTTL is the longest, if that is a limit for the checks: they ask for up to ten
	// times their Unit, and make do with less. Zero means that there is room.
	MaxTTL time.Duration `json:"max_ttl,omitempty"`

	// MaxExtend is how many times the TTL that a lock was taken with Extend can give
	// it, where locks live by sessions that were made for that TTL: 1.25, for example.
	// Zero means that any TTL up to MaxTTL will do.
	MaxExtend float64 `json:"max_extend,omitempty"`

	// TTLGranularity is what TTLs are rounded up to a multiple of.
	TTLGranularity time.Duration `json:"ttl_granularity"`

	// ExpiryLag is how long after the end of its TTL the name of a dead holder may
	// stay held. Zero, for a store that judges expiry at every request, is a bound
	// like any other.
	ExpiryLag time.Duration `json:"expiry_lag"`

	// WakeLag is how long after an Unlock, or after the expiry, a waiter may still
	// be waiting.
	WakeLag time.Duration `json:"wake_lag"`

	// CleanupBound is how long after a cancelled or failed call has ended, and
	// after its last reply has come, the name may still be taken by what the call
	// has left.
	CleanupBound time.Duration `json:"cleanup_bound"`
}

// TimingFrom returns the timing that the engine gives a driver with the capabilities
// d. A driver that needs more for waking or cleaning up changes the result.
func TimingFrom(d driver.Capabilities) Timing {
	t := Timing{
		MinTTL:         max(d.MinTTL, time.Millisecond),
		MaxTTL:         cmp.Or(d.MaxTTL, distlock.MaxTTL),
		TTLGranularity: d.TTLGranularity,
		MaxExtend:      d.MaxExtend,
		ExpiryLag:      d.ExpiryLag,
		WakeLag:        50 * time.Millisecond,
		CleanupBound:   time.Second,
	}
	if t.TTLGranularity <= 0 {
		t.TTLGranularity = time.Millisecond
	}
	if !d.Push {
		t.WakeLag = 150 * time.Millisecond // the slowest poll, 100 ms, and its jitter
	}
	return t
}

// String lists the bounds in one line.
func (t Timing) String() string {
	return fmt.Sprintf("min-ttl=%v granularity=%v expiry-lag=%v wake-lag=%v cleanup=%v",
		t.MinTTL, t.TTLGranularity, t.ExpiryLag, t.WakeLag, t.CleanupBound)
}

const (
	// minUnit keeps the TTLs of a fast server well above what a busy machine
	// delays a goroutine by: 340 ms were seen beside four competing processes.
	minUnit = 2 * time.Second

	// minSlack is what a liveness bound is widened by on an idle machine.
	minSlack = time.Second

	// minShort is long enough for the answers of an idle server.
	minShort = 200 * time.Millisecond

	// lately is how far back a delay counts for the TTLs of a check that begins now.
	lately = 30 * time.Second

	// In virtual time nothing is ever late, so the unit may be long enough to dwarf
	// every constant of the engine, and the slack need only cover the polls
	// of the checks themselves.
	virtualUnit  = 30 * time.Second
	virtualSlack = 50 * time.Millisecond

	// A hundred samples, so that the 99th percentile leaves out one hiccup, such as
	// that of a server just started. A slow server gets by with fewer.
	calibrationRuns  = 100
	calibrationPairs = 20
	calibrationSleep = 10 * time.Millisecond
)

// Calibration is what the suite has found out about machine and server before the
// first check.
type Calibration struct {
	Unit  time.Duration `json:"unit"`  // the TTL that checks work with
	Short time.Duration `json:"short"` // the least TTL that they let run out, if the driver has one as short
	Slack time.Duration `json:"slack"` // what "by then" is widened by

	SleepOver time.Duration `json:"sleep_overshoot_p99"` // of sleeping for 10 ms
	Pair      time.Duration `json:"lock_unlock_p99"`     // of TryLock and Unlock on a free name
	Open      time.Duration `json:"open"`                // of a client, beside as many others as are opened at a time
	Virtual   bool          `json:"virtual,omitempty"`
}

// String describes the calibration in one line.
func (k Calibration) String() string {
	if k.Virtual {
		return fmt.Sprintf("virtual time, unit %v, slack %v", k.Unit, k.Slack)
	}
	return fmt.Sprintf("unit %v, short %v, slack %v (p99: sleep overshoot %v, lock and unlock %v; %d clients opened side by side in %v)",
		k.Unit, k.Short.Round(time.Millisecond), k.Slack, k.SleepOver.Round(10*time.Microsecond), k.Pair.Round(10*time.Microsecond),
		maxOpening, k.Open.Round(time.Millisecond))
}

// calibrate measures how late this machine wakes up a goroutine and how long the
// server takes. A server that does not answer leaves Pair at zero: the checks will
// say what is wrong with it.
func calibrate(ctx context.Context, pair func(context.Context) error) (sleepOver, lockPair time.Duration, err error) {
	var wg sync.WaitGroup
	over := make([]time.Duration, calibrationRuns)
	wg.Go(func() {
		for i := range over {
			began := time.Now()
			time.Sleep(calibrationSleep)
			over[i] = time.Since(began) - calibrationSleep
		}
	})
	var pairs []time.Duration
	for first := time.Now(); len(pairs) < calibrationRuns; {
		if len(pairs) >= calibrationPairs && time.Since(first) > calibrationRuns*calibrationSleep {
			break
		}
		began := time.Now()
		if err = pair(ctx); err != nil {
			break
		}
		pairs = append(pairs, time.Since(began))
	}
	wg.Wait()
	return p99(over), p99(pairs), err
}

// p99 returns the 99th percentile, the greatest of fewer than 100 values.
func p99(ds []time.Duration) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	return ds[(len(ds)*99+99)/100-1]
}

// derive sets Unit, Short and Slack from the measurements.
func (k *Calibration) derive(t Timing) {
	if k.Virtual {
		// Nothing is late but the driver, if it sleeps.
		k.Slack, k.Unit = virtualSlack+20*k.Pair, t.fitUnit(max(virtualUnit, 20*k.Pair))
		k.follow(k.Pair)
		return
	}
	k.Slack = max(minSlack, 10*k.SleepOver, 20*k.Pair)
	if raceEnabled || os.Getenv("CI") == "true" {
		k.Slack *= 4 // the detector costs up to ten times the CPU; shared runners stall
	}
	// A client that was cut off connects anew within the two thirds of a lease that are left when a renewal fails.
	k.Unit = t.fitUnit(max(minUnit, 10*k.Pair, 4*k.Open))
	k.follow(k.Pair)
}

// follow makes Short long enough for what has taken so long: a lease of which the holder hears when half of it is over tells
// nothing. It stays within the unit, which what waits for its end allows for.
func (k *Calibration) follow(slowest time.Duration) {
	k.Short = min(max(minShort, k.Short, 4*slowest), k.Unit)
}

// fitUnit makes a unit out of d. The driver grants it, and four times as much, exactly
// as asked for: checks need that.
func (t Timing) fitUnit(d time.Duration) time.Duration {
	g := max(t.TTLGranularity, time.Millisecond)
	if t.MaxTTL > 0 {
		d = min(d, t.MaxTTL/4/g*g)
	}
	return (max(d, t.MinTTL) + g - 1) / g * g
}
