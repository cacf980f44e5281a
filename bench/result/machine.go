package result

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/distlock-go/distlock/bench/peers"
)

// Machine says where the runs took place.
type Machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	Go   string `json:"go"`
	CPU  string `json:"cpu,omitempty"` // its model, where it is known
	CPUs int    `json:"cpus"`
}

func thisMachine() Machine {
	return Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(), CPU: model(), CPUs: runtime.NumCPU()}
}

// versions returns those of the contenders' modules in this program. What else is in
// it, to start servers or to read profiles, has no part in the figures.
func versions() map[string]string {
	v := make(map[string]string)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if slices.ContainsFunc(peers.All, func(c peers.Contender) bool { return c.Module == d.Path }) {
				v[d.Path] = d.Version
			}
		}
	}
	return v
}

// fits reports whether r was taken on the machine and with the versions of now.
func (r *Results) fits(now *Results) bool {
	for module, version := range now.Versions {
		if r.Versions[module] != version {
			return false
		}
	}
	return r.Machine == now.Machine
}

// model returns what Linux calls the processor, or nothing.
func model() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
