// Package result is what a run of the benchmarks leaves: the figures, as JSON, what
// they say of each other, and the page that is made of them.
package result

// Figure is one thing that is measured.
type Figure string

// The figures.
const (
	Rate  Figure = "per_s"         // lock+unlock a second
	Jain  Figure = "jain"          // how evenly clients shared a name: 1/n to 1
	P50   Figure = "p50_ms"        // median of the waits, or of the hand-offs
	P99   Figure = "p99_ms"        // 99th percentile
	Worst Figure = "worst_ms"      // the longest
	Count Figure = "samples"       // how many went into the percentiles
	Known Figure = "known_names"   // requests per lock+unlock of a name that was used before
	New   Figure = "new_names"     // the same of names that were not
	Each  Figure = "requests_each" // requests a second per waiter, or per waiting process
	All   Figure = "requests_per_s"
	Bytes Figure = "bytes_each"         // of heap and stacks in the client, per lock
	Gos   Figure = "goroutines_each"    // per lock
	CPU   Figure = "cpu"                // of the client, in processors
	Work  Figure = "cpu_us_each"        // processor time of the client per lock+unlock
	Busy  Figure = "server_cpu_us_each" // of the servers, the same
	Lost  Figure = "lost"               // locks that ended by themselves
	Took  Figure = "seconds"            // for what the row does as a whole
	Moved Figure = "places_moved"       // by how many places the most overtaken waiter came too late
	Total Figure = "requests"           // in all
	Serve Figure = "served"             // waiters that got the lock
	Held  Figure = "held_for_s"         // how long the locks were held and watched
)

// A LessIsMore figure is the better the lower it is.
func (f Figure) LessIsMore() bool {
	switch f {
	case Rate, Jain, Count, Serve, Held:
		return false
	}
	return true
}
