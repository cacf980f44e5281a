package testkit

import (
	"fmt"
	"regexp"
	"time"

	"github.com/distlock-go/distlock/internal/canary"
)

// machine knows how late this process was at any time. It begins before the tests do, which may count goroutines.
var machine = canary.StartRecording()

// silent is how the project words that a store, or a server, has not answered in time.
var silent = regexp.MustCompile(`no answer (?:\S.*? )?within ([0-9][0-9a-zµ.]*)`)

// words is what a test says of an error that it did not want. If nobody has answered in time, and the machine was late for more than
// a quarter of that time, nothing was learnt: then it says so in words by which "make test" runs the test once more. An
// answer is never excused, nor is a grant.
func words(err error, end string, late func(from, to time.Time) time.Duration) string {
	said := silent.FindStringSubmatch(err.Error())
	if said == nil {
		return err.Error()
	}
	waited, bad := time.ParseDuration(said[1])
	now := time.Now()
	if l := late(now.Add(-waited), now); bad == nil && l > waited/4 {
		return fmt.Sprintf(inconclusive+end+"the machine was late by %v of the last %v: %v", l.Round(time.Millisecond), waited, err)
	}
	return err.Error()
}
