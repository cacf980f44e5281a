package result

// Bucket is one kind of work of a process: see package bucket, which tells them apart.
type Bucket string

// The buckets. Each sample of a profile is in one of them.
const (
	SystemCalls Bucket = "system calls"
	Scheduler   Bucket = "scheduler"
	Memory      Bucket = "memory"
	Library     Bucket = "client library"
	Driver      Bucket = "driver"
	Portable    Bucket = "portable half"
	Rest        Bucket = "rest"
)

// Buckets in the order in which they are shown.
var Buckets = []Bucket{SystemCalls, Scheduler, Memory, Library, Driver, Portable, Rest}

// Profile says where a process has spent its processor time.
type Profile struct {
	Samples int64            `json:"samples"` // of a hundredth of a second each
	Spent   map[Bucket]int64 `json:"spent"`   // the samples by bucket
}

// Add adds what another run of the same has spent.
func (p *Profile) Add(q *Profile) {
	p.Samples += q.Samples
	for bucket, n := range q.Spent {
		p.Spent[bucket] += n
	}
}

// Share returns which part of the time went into the bucket, from 0 to 1.
func (p *Profile) Share(b Bucket) float64 { return float64(p.Spent[b]) / float64(p.Samples) }

// Site is a function that allocates.
type Site struct {
	Function string  `json:"function"`
	Bytes    float64 `json:"bytes_each"` // that are in use, for each lock that is held
}
