package report

import (
	"math"
	"strings"
	"testing"
	"time"
)

// Each bound is named in the error that tells of it.
func TestParams(t *testing.T) {
	valid := func() Params {
		return Params{Workloads: WorkloadIDs(), Duration: 50 * time.Millisecond, Rounds: 2, Clients: 4, Names: 4,
			Held: 8, Waiters: 5, TTL: 4 * time.Second, Rate: 200}
	}
	if err := valid().Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Params){
		"duration":  func(p *Params) { p.Duration = time.Millisecond },
		"rounds":    func(p *Params) { p.Rounds = 0 },
		"clients":   func(p *Params) { p.Clients = 1 },
		"names":     func(p *Params) { p.Names = 10_001 },
		"held":      func(p *Params) { p.Held = 0 },
		"waiters":   func(p *Params) { p.Waiters = -1 },
		"ttl":       func(p *Params) { p.TTL = time.Second },
		"hold":      func(p *Params) { p.Hold = 2 * time.Minute },
		"rate":      func(p *Params) { p.Rate = math.NaN() },
		"rate is 0": func(p *Params) { p.Rate = 0 },
		"workload":  func(p *Params) { p.Workloads = []string{"none"} },
	} {
		p := valid()
		spoil(&p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "allowed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
