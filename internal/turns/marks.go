package turns

import (
	"sync"
	"time"
)

// Marks say of names, for a while, what was seen of them. What is forgotten is noticed again. It is safe for
// concurrent use, and the zero value is ready to use.
type Marks struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// maxMarks bounds the memory.
const maxMarks = 4096

// Set marks a name for the time d.
func (m *Marks) Set(name string, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// A full map is dropped: to find the oldest name would cost more than to forget it.
	if m.until == nil || len(m.until) >= maxMarks {
		m.until = make(map[string]time.Time)
	}
	m.until[name] = time.Now().Add(d)
}

// Has reports whether a name is marked.
func (m *Marks) Has(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.until[name])
}

// Remove takes the mark off a name, and reports whether there was one.
func (m *Marks) Remove(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.until[name]
	delete(m.until, name)
	return ok
}
