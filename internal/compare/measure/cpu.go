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
	client, knownClient := CPUTime(own)
	server, knownServer := CPUTime(b.target.PIDs)
	pairs := b.pairs.Load()
	return func(workload string, figures map[report.Figure]float64) {
		n := float64(b.pairs.Load() - pairs)
		if n == 0 || !slices.Contains(report.Costed, workload) {
			return
		}
		if after, ok := CPUTime(own); ok && knownClient {
			figures[report.ClientCPU(workload)] = float64(after-client) / float64(time.Microsecond) / n
		}
		if after, ok := CPUTime(b.target.PIDs); ok && knownServer {
			figures[report.ServerCPU(workload)] = float64(after-server) / float64(time.Microsecond) / n
		}
	}
}

// busy begins to count processor time. It returns a function that adds to figures what
// this process and the server have used since, a second.
func (b *bench) busy() func(figures map[report.Figure]float64) {
	own, began := []int{os.Getpid()}, time.Now()
	client, knownClient := CPUTime(own)
	server, knownServer := CPUTime(b.target.PIDs)
	return func(figures map[report.Figure]float64) {
		passed := time.Since(began).Seconds()
		if after, ok := CPUTime(own); ok && knownClient {
			figures[report.HeldClientCPU] = ms(after-client) / passed
		}
		if after, ok := CPUTime(b.target.PIDs); ok && knownServer {
			figures[report.HeldServerCPU] = ms(after-server) / passed
		}
	}
}
