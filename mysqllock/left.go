package mysqllock

import "sync"

// left are names that this driver has given back without having had to wait for them:
// they have a row, and are likely to be free.
type left struct {
	mu    sync.Mutex
	names map[string]struct{}
}

// maxLeft bounds the memory. A name that is forgotten costs some microseconds.
const maxLeft = 4096

func (l *left) add(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.names == nil || len(l.names) >= maxLeft {
		l.names = make(map[string]struct{})
	}
	l.names[name] = struct{}{}
}

// remove reports whether the name was there.
func (l *left) remove(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.names[name]
	delete(l.names, name)
	return ok
}
