package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/distlock-go/distlock/driver"
)

// ballot counts what the servers say of one matter.
type ballot struct {
	nodes, quorum int
	yes, no, told int // told counts all: also those that have failed, or say neither
	failed        []error
}

func (d *store) ballot() ballot { return ballot{nodes: len(d.nodes), quorum: d.quorum} }

func (b *ballot) add(yes, no bool, err error) {
	b.told++
	switch {
	case err != nil:
		b.failed = append(b.failed, err)
	case yes:
		b.yes++
	case no:
		b.no++
	}
}

// rest returns how many servers a majority can do without.
func (b *ballot) rest() int { return b.nodes - b.quorum }

func (b *ballot) carried() bool { return b.yes >= b.quorum }

// rejected reports whether no majority can say yes, by what the others have said.
func (b *ballot) rejected() bool { return b.no > b.rest() }

// broken reports whether no majority can say anything.
func (b *ballot) broken() bool { return len(b.failed) > b.rest() }

// fates are those of servers without a majority, the one that decides the call's first. What is repeated at once may make a
// majority, whatever the others have said, unless something may have been done.
var fates = []driver.Fate{driver.Unknown, driver.Again, driver.NotNow, driver.NotSent, driver.Answered}

// fault says why there is no majority, and what that means for the call: each server's fault speaks of that server only.
func (b *ballot) fault(format string, args ...any) error {
	fate := len(fates) - 1
	for _, err := range b.failed {
		fate = min(fate, slices.Index(fates, driver.FateOf(err)))
	}
	return &driver.Fault{Fate: fates[fate], Err: fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errors.Join(b.failed...))}
}

// gather gives answers to add until that reports that no further one is needed. It returns the error of ctx if that
// ends before.
func gather[T any](ctx context.Context, answers <-chan T, add func(T) (over bool)) error {
	for {
		select {
		case a := <-answers:
			if add(a) {
				return nil
			}
		case <-ctx.Done():
			select {
			case a := <-answers: // both may have come while the process stood still
				if add(a) {
					return nil
				}
			default:
				return ctx.Err()
			}
		}
	}
}
