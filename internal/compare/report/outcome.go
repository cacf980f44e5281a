package report

// Verdict judges an outcome, for colours and for the exit status.
type Verdict string

// The verdicts, best first.
const (
	Good       Verdict = "good"
	Caution    Verdict = "caution"    // known and bounded, but something to build around
	Bad        Verdict = "bad"        // the contract is broken: two holders, a late loss, leftovers
	Unmeasured Verdict = "unmeasured" // with the reason in the outcome's text
)

// A Hazard is something that goes wrong in production and is made to go wrong here.
type Hazard string

// The hazards, in the order of the report.
const (
	KilledHolder    Hazard = "killed_holder"    // SIGKILL: how long until the next one holds
	StalledHolder   Hazard = "stalled_holder"   // SIGSTOP past the TTL: does it learn before the next one holds
	CutOffHolder    Hazard = "cutoff_holder"    // its packets vanish: the same
	ServerRestart   Hazard = "server_restart"   // while held: kept, lost and told, or lost and not told
	CancelledWaiter Hazard = "cancelled_waiter" // what it leaves behind, and for how long
	Herd            Hazard = "herd"             // requests caused by one release with many waiting
	Fairness        Hazard = "fairness"         // Jain's index and the worst wait
	DoubleGrants    Hazard = "double_grants"    // overlapping holds seen, and among how many
)

// Outcome is what one hazard led to on one backend.
type Outcome struct {
	Verdict Verdict `json:"verdict"`
	Text    string  `json:"text"`             // for a table cell: "told 6.3 s before"
	Detail  string  `json:"detail,omitempty"` // for a footnote: how it was measured, over how many operations
	Values  Series  `json:"values,omitempty"` // one a repetition, in Unit
	Unit    string  `json:"unit,omitempty"`   // "ms", "requests", "overlaps"; empty if there are no values
}

// Fact is something about a backend that no run measures: from its driver's
// capabilities, or from the store's documentation.
type Fact struct {
	ID    string `json:"id"`    // "exclusion", "crashed_holder", "durability", "fairness", "ttl", "token", "clock", "replication"
	Title string `json:"title"` // "mechanism of exclusion"
	Text  string `json:"text"`
}

// Distribution is how the durations of one workload spread, over all rounds.
type Distribution struct {
	Percentiles []float64 `json:"percentiles"` // rising, in percent: 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100
	MS          []float64 `json:"ms"`          // one for each
	Count       int       `json:"count"`
}

// Curve is a figure as it changes with a number, such as clients or held locks.
type Curve struct {
	X      string  `json:"x"` // "clients on one name"
	Y      string  `json:"y"` // "lock+unlock per second"
	Points []Point `json:"points"`
}

// Point is one point of a Curve: the median over the rounds.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// Traffic is what one lock and unlock of a workload costs on the wire, both ways,
// counted by a proxy between the client and the server.
type Traffic struct {
	Requests float64 `json:"requests"`
	Bytes    float64 `json:"bytes"`
}
