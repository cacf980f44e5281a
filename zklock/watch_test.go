package zklock

import (
	"testing"

	"github.com/go-zookeeper/zk"
)

// A first server of another session may not know a node yet, and say that it was deleted.
func TestDeletedInAnotherSession(t *testing.T) {
	for _, lives := range []bool{false, true} {
		events := make(chan zk.Event, 1)
		w := &watch{ready: closed, events: events, lives: func() bool { return lives }}
		events <- zk.Event{Type: zk.EventNodeDeleted}
		close(events)
		if w.valid() != lives || w.deleted.Load() != lives {
			t.Errorf("the session lives: %v, the node is taken for deleted: %v", lives, w.deleted.Load())
		}
	}
}
