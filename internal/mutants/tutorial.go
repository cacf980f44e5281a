package mutants

import (
	"context"
	"errors"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
)

// tutorialMutants are the locks of blog posts: one entry per name, nobody queues.
func tutorialMutants() []Mutant {
	return []Mutant{
		{
			Name: "SetnxExpire", Flaw: "SETNX, then EXPIRE: whoever dies in between holds the name for ever",
			Seen:     "tutorials",
			KilledBy: []Kill{{"expiry/ttl-atomic", "an entry without expiry"}},

			design: outside(plain(flaw{try: tryThenExpire})),
		},
		{
			Name: "DelAnybodys", Flaw: "DEL without comparing the owner: whoever is late removes the lock of its successor",
			Seen:     "tutorials",
			KilledBy: []Kill{{"after/expires", "two holders at once"}},

			design: inside(plain(flaw{release: releaseBlindly})),
		},
		{
			Name: "GetCompareDel", Flaw: "GET, compare, DEL: the lease may end between the two requests",
			Seen:     "tutorials",
			KilledBy: []Kill{{"pair/unlock", "looks in one step and acts in another"}},

			design: outside(plain(flaw{release: checkThenDelete})),
		},
		{
			Name: "Getset", Flaw: "stores the deadline by the holder's clock, and lets everybody compare it with their own",
			Seen:     "the GETSET lock of the old Redis manual, and its translations",
			KilledBy: []Kill{{"core/exclusive", "was granted"}},

			design: inside(plain(flaw{try: tryGetset})),
		},
		{
			Name: "ThreadID", Flaw: "takes the number of its thread for the owner, which is the same in every process",
			Seen:     "tutorials in languages with thread-local storage",
			KilledBy: []Kill{{"core/exclusive", "was granted"}},

			design: inside(plain(flaw{request: func(_ *env, r *driver.Request) { r.Owner = "thread 1" }})),
		},
	}
}

// tutorialTimers are those that have a wrong idea of expiry and renewal.
func tutorialTimers() []Mutant {
	return []Mutant{
		{
			Name: "InsertRow", Flaw: "INSERT of a row, DELETE to unlock: the row of a dead holder stays",
			Seen:     "tutorials",
			KilledBy: []Kill{{"after/expires", "it had to be free by"}},

			design: inside(plain(flaw{
				request: func(_ *env, r *driver.Request) { r.TTL = distlock.MaxTTL },
				try:     asAsked,
				renew:   renewAsAsked,
			})),
		},
		{
			Name: "OwnClock", Flaw: "stores when the holder got the lock by its clock, and breaks it when that is a TTL ago by one's own",
			Seen:     "lock tables with a column for the time of the client",
			KilledBy: []Kill{{"expiry/server-clock-judges", "was granted"}},
			design:   inside(plain(flaw{try: tryByOwnClock})),
		},
		{
			Name: "Watchdog", Flaw: "renews every third of the TTL in a thread that Unlock does not end",
			Seen:     "tutorials, with 30 s and a thread that sleeps for 20",
			KilledBy: []Kill{{"auto/stops-on-unlock", "before it had anything to renew"}, {"leak/goroutines", "are left"}},

			design: outside(plain(flaw{try: tryAndHaunt})),
		},
	}
}

// tryGetset breaks what has expired by this client's clock. That is one minute ahead
// for each client before it.
func tryGetset(ctx context.Context, c *claim) (driver.Grant, error) {
	g, err := c.inner.Try(ctx)
	if !errors.Is(err, distlock.ErrHeld) {
		c.stamp(err)
		return g, err
	}
	var expired bool
	c.driver.with(c.asked.Name, func(e *entry) { expired = e.expires.Before(c.driver.clock()) })
	if !expired {
		return g, err
	}
	_ = remove(ctx, c.driver.mem, c.asked.Name) // ErrLost if it has been removed meanwhile
	g, err = c.inner.Try(ctx)
	c.stamp(err)
	return g, err
}

func (e *env) clock() time.Time { return time.Now().Add(time.Duration(e.id) * time.Minute) }

// stamp stores the deadline of a grant by the client's clock.
func (c *claim) stamp(err error) {
	if err == nil {
		c.driver.with(c.asked.Name, func(e *entry) { e.expires = c.driver.clock().Add(c.asked.TTL) })
	}
}
