package mutants

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/distlock-go/distlock/driver"
)

// mixedMutants mix up the entries of a batch, or what they ask for.
func mixedMutants() []Mutant {
	return []Mutant{
		{
			Name: "RenewsByName", Flaw: "renews what its client holds of a name now, for whatever lock of it is asked for",
			KilledBy: []Kill{{"batch/old-and-new", "no renewal has told it so"}},
			design:   design{driver: renewingByName},
		},
		{
			Name: "LargestTTL", Flaw: "renews all locks of a batch for the longest TTL among them",
			KilledBy: []Kill{{"batch/own-ttl", "with rounding and lag"}},
			design:   batched(batchFor(slices.Max[[]time.Duration])),
		},
		{
			Name: "SmallestTTL", Flaw: "renews all locks of a batch for the shortest TTL among them, and says for which each has asked",
			KilledBy: []Kill{{"batch/own-ttl", "the store keeps it for another"}},
			design:   batched(batchFor(slices.Min[[]time.Duration])),
		},
		{
			Name: "ShrinksTTL", Flaw: "renews all locks of a batch for the TTL of the first, and says so",
			KilledBy: []Kill{{"batch/own-ttl", "was it renewed for another's TTL?"}},
			design:   batched(batchShrinking),
		},
		{
			Name: "GroupsByTTL", Flaw: "renews a batch in groups of one TTL, and takes their answers, one group after the other, for those in the order of the batch",
			KilledBy: []Kill{{"batch/one-lost", "no renewal has told it so"}},
			design:   batched(batchGrouped),
		},
		{
			Name: "BatchShortens", Flaw: "sets the expiry of every lock of a batch to its TTL from now, also where it was extended beyond that",
			KilledBy: []Kill{{"after/expires", "before the lease of A could end"}},
			design:   batched(batchResets),
		},
		{
			Name: "BatchRenewsExpired", Flaw: "revives an entry that has expired if nobody has taken it since, in a batch of two or more",
			Seen:     "UPDATE with a list of owners, and without the expiry that the statement for one looks at",
			KilledBy: []Kill{{"batch/late-request", "which nobody has taken since"}},
			design:   inside(flaw{try: tryAndNote, renew: renewNoting, batch: renewExpiredIfMany, release: releaseLive}),
		},
	}
}

func renewExpiredIfMany(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	renew := renewNoting
	if len(batch) > 1 {
		renew = renewExpired
	}
	driver.RenewEach(ctx, batch, func(ctx context.Context, c driver.Claim, ttl time.Duration) (driver.Grant, error) {
		return renew(ctx, c.(*claim), ttl)
	})
}

// renewNoting notes until when the entry lasts.
func renewNoting(ctx context.Context, c *claim, ttl time.Duration) (driver.Grant, error) {
	g, err := c.inner.Renew(ctx, ttl)
	if err == nil {
		c.driver.with(c.asked.Name, func(e *entry) { e.expires = time.Now().Add(g.TTL) })
	}
	return g, err
}

// renewingByName knows a lock by its name, also after the name has gone to another.
func renewingByName(e *env) driver.Driver {
	mu := make(semaphore, 1)
	holders := make(map[string]*claim)
	return e.inside(flaw{
		try: func(ctx context.Context, c *claim) (driver.Grant, error) {
			g, err := c.inner.Try(ctx)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				holders[c.asked.Name] = c
			}
			return g, err
		},
		batch: func(ctx context.Context, _ *flawed, batch []driver.Renewal) {
			mu.Lock()
			defer mu.Unlock()
			for i, r := range batch {
				batch[i].Grant, batch[i].Err = holders[r.Claim.(*claim).asked.Name].Renew(ctx, r.TTL)
			}
		},
	})
}

// batchFor renews all for one of the TTLs, and answers with the one asked for.
func batchFor(choose func([]time.Duration) time.Duration) func(context.Context, *flawed, []driver.Renewal) {
	return func(ctx context.Context, _ *flawed, batch []driver.Renewal) {
		var ttls []time.Duration
		for _, r := range batch {
			ttls = append(ttls, r.TTL)
		}
		ttl := choose(ttls)
		for i, r := range batch {
			g, err := r.Claim.(*claim).Renew(ctx, ttl)
			g.TTL = r.TTL
			batch[i].Grant, batch[i].Err = g, err
		}
	}
}

func batchShrinking(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	ttl := batch[0].TTL
	for _, r := range batch {
		ttl = min(ttl, r.TTL)
	}
	for i, r := range batch {
		g, err := r.Claim.(*claim).Renew(ctx, ttl)
		g.TTL = min(g.TTL, ttl)
		batch[i].Grant, batch[i].Err = g, err
	}
}

func batchGrouped(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	groups := slices.Clone(batch)
	slices.SortStableFunc(groups, func(a, b driver.Renewal) int { return cmp.Compare(b.TTL, a.TTL) })
	renewEach(ctx, groups)
	for i, r := range groups {
		r.Grant.TTL = batch[i].TTL
		batch[i].Grant, batch[i].Err = r.Grant, r.Err
	}
}

func batchResets(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	for i, r := range batch {
		g, err := r.Claim.(*claim).Renew(ctx, r.TTL)
		if err == nil {
			err = r.Claim.(*claim).reset(ctx, r.TTL)
			g.TTL = r.TTL
		}
		batch[i].Grant, batch[i].Err = g, err
	}
}

// lookIfMany renews one lock alone as it has to be.
func lookIfMany(ctx context.Context, _ *flawed, batch []driver.Renewal) {
	for i, r := range batch {
		renew := r.Claim.(*claim).inner.Renew
		if len(batch) > 1 {
			renew = func(ctx context.Context, ttl time.Duration) (driver.Grant, error) {
				return lookThenRenew(ctx, r.Claim.(*claim), ttl)
			}
		}
		batch[i].Grant, batch[i].Err = renew(ctx, r.TTL)
	}
}

// noteSecond notes that the client of c has had the name before.
func noteSecond(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if err == nil {
		c.driver.with(c.asked.Name, func(e *entry) {
			c.refused = c.refused || e.client == c.driver.env && e.owner != c.asked.Owner
			e.client, e.owner = c.driver.env, c.asked.Owner
		})
	}
	return g, err
}

func releaseOnceFailed(ctx context.Context, c *claim) error {
	if c.refused {
		return checkThenDelete(ctx, c)
	}
	err := c.inner.Release(ctx)
	c.refused = err != nil && !isLost(driver.Renewal{Err: err})
	return err
}
