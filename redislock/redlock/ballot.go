package redlock

import "context"

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
			return ctx.Err()
		}
	}
}
