package measure

import (
	"os"
	"slices"
	"time"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// meter begins to count processor time. It returns a function that adds to the figures
// of a workload: the time of each pair of lock and unlock in this process, and in the
// server's, if known. Connections are open by then: the warm-up has opened them.
func (b *bench) meter() func(workload string, figures map[report.Figure]float64) {
	own := []int{os.Getpid()}
	server, knownServer := ServerTime(b.target.PIDs) // first: it takes time of this process
	client, knownClient := CPUTime(own)
	pairs := b.pairs.Load()
	return func(workload string, figures map[report.Figure]float64) {
		n := float64(b.pairs.Load() - pairs)
		if n == 0 || !slices.Contains(report.Costed, workload) {
			return
		}
		if after, ok := CPUTime(own); ok && knownClient {
			figures[report.ClientCPU(workload)] = float64(after-client) / float64(time.Microsecond) / n
		}
		if after, ok := ServerTime(b.target.PIDs); ok && knownServer {
			figures[report.ServerCPU(workload)] = float64(after-server) / float64(time.Microsecond) / n
		}
	}
}

// busy begins to count processor time. It returns a function that adds to figures what
// this process and the server have used since, a second.
func (b *bench) busy() func(figures map[report.Figure]float64) {
	own := []int{os.Getpid()}
	server, knownServer := ServerTime(b.target.PIDs) // first: it takes time of this process
	began := time.Now()
	client, knownClient := CPUTime(own)
	return func(figures map[report.Figure]float64) {
		passed := time.Since(began).Seconds()
		if after, ok := CPUTime(own); ok && knownClient {
			figures[report.HeldClientCPU] = ms(after-client) / passed
		}
		if after, ok := ServerTime(b.target.PIDs); ok && knownServer {
			figures[report.HeldServerCPU] = ms(after-server) / passed
		}
	}
}

// tellServerCPU says why the processor time of a server is not measured.
func (b *bench) tellServerCPU() {
	if _, known := ServerTime(b.target.PIDs); known || b.target.Store == "" || b.refused {
		return
	}
	why := "the server is not a local process that was started for this run"
	if len(b.target.PIDs) > 0 {
		why = "this system does not tell it"
	}
	b.result.Unmeasured["server_cpu"] = why
}
