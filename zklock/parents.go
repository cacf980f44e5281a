package zklock

import "sync"

// maxParents bounds what is remembered of the nodes of names: some hundred kilobytes.
const maxParents = 4096

// parents remembers which nodes of names were there lately. A claim on such a name
// begins with its own node; on another one the parent is made first, which costs
// one request more, but one less than finding out by a failure that it is missing.
// A server removes an empty container at any time, so this is no more than a guess.
type parents struct {
	mu    sync.Mutex
	known map[string]bool // true if others were there, too, when we last looked
}

func (p *parents) has(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.known[path]
	return ok
}

// add forgets all others when there are too many: that costs each of them a request
// once, and needs no order of use.
func (p *parents) add(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) == maxParents {
		p.known = make(map[string]bool)
	}
	p.known[path] = false
}

func (p *parents) remove(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, path)
}

func (p *parents) crowded(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[path]
}

// setCrowded notes whether there are others, of a node that is known.
func (p *parents) setCrowded(path string, others bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.known[path]; ok {
		p.known[path] = others
	}
}
