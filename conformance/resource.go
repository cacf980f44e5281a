package conformance

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// register is a fenced store: it refuses a write with a lower token than one it has
// seen. A lock needs such a store where a stale write would do harm. It is safe for
// concurrent use.
type register struct {
	mu     sync.Mutex
	max    int64
	writes []fencedWrite
}

type fencedWrite struct {
	Who   string
	Token int64
}

// write stores a value, and fails if a later holder has written before.
func (r *register) write(who string, token int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.max {
		return fmt.Errorf("token %d is lower than %d, with which %s has written", token, r.max, r.writes[len(r.writes)-1].Who)
	}
	r.max = token
	r.writes = append(r.writes, fencedWrite{who, token})
	return nil
}

// counter is what a lock is for: a number to be read, computed with and written back.
// It counts the additions separately, so that lost ones show.
//
// Reading and writing are atomic each, though not together: a plain variable would
// make the race detector speak first, and end the process in place of a report.
type counter struct {
	value, added atomic.Int64
}

// add adds one, with a pause in between that lets others come.
func (k *counter) add(pause func()) {
	v := k.value.Load()
	pause()
	k.value.Store(v + 1)
	k.added.Add(1)
}

// lost returns how many additions were overwritten.
func (k *counter) lost() int64 { return k.added.Load() - k.value.Load() }
