package report

import "slices"

// A Figure is one measured quantity, with one value a round.
type Figure string

// The figures, with their units.
const (
	BareRate         Figure = "bare_per_s"          // pairs of bare commands a second, one after the other
	BareParallelRate Figure = "bare_parallel_per_s" // the same on many keys at once
	SoloRate         Figure = "solo_per_s"          // lock+unlock a second, one after the other
	ParallelRate     Figure = "parallel_per_s"      // lock+unlock a second, on many names at once
	HotRate          Figure = "hot_per_s"           // lock+unlock a second, many clients on one name
	HotJain          Figure = "hot_jain"            // Jain's index of how they shared it: 1/n to 1
	HotWorst         Figure = "hot_worst_wait_ms"   // the longest wait of any
	HandOff50        Figure = "handoff_p50_ms"      // from the call to Unlock to the waiter's return
	HandOff99        Figure = "handoff_p99_ms"      // the same, 99th percentile

	HeldCount      Figure = "held_count"           // how many locks were held
	HeldBytes      Figure = "held_bytes"           // memory of this process for each lock held
	HeldGoroutines Figure = "held_goroutines"      // goroutines of this process for each lock held
	HeldRequests   Figure = "held_requests_per_s"  // renewal requests a second for all locks together, at a TTL of 6 s at the most
	HeldClientCPU  Figure = "held_client_ms_per_s" // of this process and the counting proxy in it, for all locks together
	HeldServerCPU  Figure = "held_server_ms_per_s" // of the server, where that is a process started for the run
	HeldLost       Figure = "held_lost"            // locks lost while they should have been held

	WaitRequests Figure = "waiting_requests_per_s" // requests a second while all wait
	WaitAll      Figure = "waiting_drain_ms"       // from the holder's Unlock until all have had their turn
	WaitDisorder Figure = "waiting_out_of_order"   // share of the grants that came before an earlier caller's: 0 to 1

	ArrivalRate Figure = "arrivals_per_s"     // calls served a second
	Arrival50   Figure = "arrivals_p50_ms"    // from the intended start to the grant
	Arrival99   Figure = "arrivals_p99_ms"    // the same, 99th percentile
	TryWin50    Figure = "try_won_p50_ms"     // TryLock that got the name
	TryBusy50   Figure = "try_busy_p50_ms"    // TryLock that was told that it is held
	TryNobody   Figure = "try_nobody"         // share of the free names that none of the clients got: 0 to 1
	FailOver    Figure = "failover_ms"        // from the cut to the grant to a waiter
	FailOverTTL Figure = "failover_after_ttl" // the same, as a multiple of the TTL
)

// worst are figures of the worst that has come in a round.
var worst = []Figure{HotWorst, WaitDisorder, TryNobody, HeldLost}

// Of returns what stands for all rounds of a figure: the median, or the greatest of what is the worst of a round already. It
// reports false if nothing was measured.
func (f Figure) Of(rounds Series) (float64, bool) {
	if len(rounds) > 0 && slices.Contains(worst, f) {
		return slices.Max(rounds), true
	}
	return rounds.Median()
}

// ClientCPU is what a pair of lock and unlock of a workload costs this process, in
// microseconds of its processors.
func ClientCPU(workload string) Figure { return Figure(workload + "_client_us") }

// ServerCPU is what it costs the server, where the server is a process of this machine
// that was started for the run.
func ServerCPU(workload string) Figure { return Figure(workload + "_server_us") }

// Costed are the workloads reported with their processor time.
var Costed = []string{"bare", "bare_parallel", "solo", "parallel", "hot", "handoff"}
