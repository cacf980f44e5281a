package mutants

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// batchMutants get the renewal of many locks in one request wrong.
func batchMutants() []Mutant {
	return slices.Concat(partialMutants(), mixedMutants(), lateMutants())
}

// partialMutants do not tell the entries of a batch apart.
func partialMutants() []Mutant {
	return []Mutant{
		{
			Name: "AllOrNothing", Flaw: "takes all locks of a batch for lost when one of them is",
			KilledBy: []Kill{{"batch/one-lost", "only the entry of"}},
			design:   batched(batchAllLost),
		},
		{
			Name: "OffByOne", Flaw: "gives every lock of a batch the answer of its neighbour",
			KilledBy: []Kill{{"batch/one-lost", "no renewal has told it so"}},
			design:   batched(batchNeighbours),
		},
		{
			Name: "LossHidden", Flaw: "answers that every lock of a batch was renewed, whatever the store has said",
			KilledBy: []Kill{{"batch/one-lost", "no renewal has told it so"}},
			design:   batched(batchNeverLost),
		},
		{
			Name: "NoneTouched", Flaw: "takes the answer that a batch has touched no entry for one that says nothing",
			Seen:     "a reply without rows, over which a loop that looks for losses does nothing",
			KilledBy: []Kill{{"batch/one-lost", "the entries of all locks"}},
			design:   batched(batchUnlessAllLost),
		},
		{
			Name: "LossIsError", Flaw: "answers that a batch has failed when one of its locks is lost",
			KilledBy: []Kill{{"batch/one-lost", "no renewal has told it so"}},
			design:   batched(batchFails),
		},
		{
			Name: "StopsAtLoss", Flaw: "stops at the first lock of a batch that is lost, and says that those behind it were renewed",
			KilledBy: []Kill{{"batch/one-lost", "the store keeps it for another"}},
			design:   batched(batchStops),
		},
		{
			Name: "FirstHundred", Flaw: "renews the first 128 locks of a batch only, and says that it has renewed all",
			KilledBy: []Kill{{"batch/each-renewed", "A"}},
			design:   batched(batchFirst),
		},
		{
			Name: "ForgetsLast", Flaw: "forgets the last lock of a batch that is full",
			KilledBy: []Kill{{"batch/each-renewed", "the store keeps it for another"}},
			design:   batched(batchButLast),
		},
		{
			Name: "SharedBuffer", Flaw: "keeps the answers to a batch where those to the next one come",
			KilledBy: []Kill{{"batch/each-renewed", "removed"}},
			design:   design{driver: sharingBuffer},
		},
	}
}

// batched makes a design of a way to renew a batch, within one request.
func batched(f func(ctx context.Context, d *flawed, batch []driver.Renewal)) design {
	return inside(flaw{batch: f})
}

// renewEach is what a batch has to do.
func renewEach(ctx context.Context, batch []driver.Renewal) {
	driver.RenewEach(ctx, batch, func(ctx context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		return c.(*claim).Renew(ctx, ttl)
	})
}

func isLost(r driver.Renewal) bool { return errors.Is(r.Err, distlock.ErrLost) }

func batchAllLost(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	renewEach(ctx, batch)
	if slices.ContainsFunc(batch, isLost) {
		for i := range batch {
			batch[i].Err = distlock.ErrLost
		}
	}
}

func batchNeighbours(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	renewEach(ctx, batch)
	first := batch[0]
	for i := range batch {
		next := first
		if i+1 < len(batch) {
			next = batch[i+1]
		}
		batch[i].Grant, batch[i].Err = next.Grant, next.Err
	}
}

func batchNeverLost(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	renewEach(ctx, batch)
	for i := range batch {
		if isLost(batch[i]) {
			batch[i].Grant, batch[i].Err = driver.Grant{TTL: batch[i].TTL}, nil
		}
	}
}

func batchUnlessAllLost(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	renewEach(ctx, batch)
	if len(batch) > 1 && !slices.ContainsFunc(batch, func(r driver.Renewal) bool { return !isLost(r) }) {
		pretend(batch)
	}
}

func batchFails(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	renewEach(ctx, batch)
	if slices.ContainsFunc(batch, isLost) {
		for i := range batch {
			batch[i].Grant, batch[i].Err = driver.Grant{}, errors.New("EXECABORT transaction discarded")
		}
	}
}

func batchStops(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	for i := range batch {
		renewEach(ctx, batch[i:i+1])
		if isLost(batch[i]) {
			pretend(batch[i+1:])
			return
		}
	}
}

// pretend answers that entries were renewed.
func pretend(batch []driver.Renewal) {
	for i := range batch {
		batch[i].Answer(driver.Grant{TTL: batch[i].TTL}, nil)
	}
}

func batchFirst(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	n := min(len(batch), 128)
	renewEach(ctx, batch[:n])
	pretend(batch[n:])
}

func batchButLast(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	n := len(batch)
	if n == 500 {
		n--
	}
	renewEach(ctx, batch[:n])
	pretend(batch[n:])
}

// sharingBuffer has room for the answers to one batch at a time.
func sharingBuffer(e *env) driver.Driver {
	var mu sync.Mutex
	var answers []driver.Renewal
	return e.outside(flaw{batch: func(ctx context.Context, d *flawed, batch []driver.Renewal) {
		below := lower(batch)
		d.inner.Renew(ctx, below)
		mu.Lock()
		answers = below
		mu.Unlock()
		time.Sleep(20 * time.Millisecond) // until it comes to read them
		mu.Lock()
		defer mu.Unlock()
		for i := range batch {
			if i < len(answers) {
				batch[i].Answer(answers[i].Grant, answers[i].Err)
			} else {
				pretend(batch[i : i+1])
			}
		}
	}})
}

// lower returns the batch as the driver below has to see it.
func lower(batch []driver.Renewal) []driver.Renewal {
	below := make([]driver.Renewal, len(batch))
	for i, r := range batch {
		below[i] = driver.Renewal{Claim: r.Claim.(*claim).inner.Claim, TTL: r.TTL}
	}
	return below
}
