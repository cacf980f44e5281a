package testkit

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestWords: an error is excused only if nobody has answered, and the machine was late meanwhile.
func TestWords(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]bool{
		`distlock: unlock "x": no answer from zookeeper within 5s: the last one was: zk: connection closed`: true,
		"zk: connection closed: 127.0.0.1:31326: no answer within 500ms":                                    true,
		"no answer from 127.0.0.1:39415 to the TLS handshake within 3s: it may be a port without TLS":       true,
		`distlock: trylock "x": held by another`:                                                            false,
		`distlock: lock "x": lock lost: not renewed before its deadline`:                                    false,
		"no answer within a second": false,
	} {
		for _, late := range []bool{true, false} {
			text := words(errors.New(said), "", func(from, to time.Time) time.Duration {
				if late {
					return to.Sub(from)/4 + 1
				}
				return to.Sub(from) / 4
			})
			if got := strings.HasPrefix(text, "inconclusive: "); got != (want && late) || !strings.HasSuffix(text, said) {
				t.Errorf("late: %v: %q", late, text)
			}
		}
	}
}
