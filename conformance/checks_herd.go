package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/distlock-go/distlock"
)

// herdClients ask for the same names in one moment; herdNames end in one round; herdEnds are enough, or what a slow store
// does in half of the time of a check. Where the check need not be thorough, a round of each kind with a quarter of the
// clients and names has to do.
const herdClients, herdNames, herdEnds = 32, 64, 2000

func herdChecks() []Check {
	return []Check{
		{ID: "pair/herd-try", Clause: "H1", Mandatory: true, Heavy: true, Run: func(c *C) { c.herds(0, false) },
			Rule: "many clients that ask for a name just when it ends, by its lease or by Unlock, do not get it twice"},
		{ID: "pair/herd-lock", Clause: "H1", Mandatory: true, Heavy: true, Run: func(c *C) { c.herds(0, true) },
			Rule: "many clients that wait for a name do not get it twice just when it ends, by its lease or by Unlock"},
		{ID: "pair/herd-processes", Clause: "H1", Mandatory: true, Needs: []Cap{capChild}, Heavy: true, Run: func(c *C) { c.herds(3, false) },
			Rule: "many clients in several processes that ask for a name just when it ends, by its lease or by Unlock, do not get it twice"},
	}
}

// herd is what the clients of one process do in a round: they ask for each name by TryLock, a few times, or wait
// for all of them.
type herd struct {
	Names  []string      `json:"names"`
	TTL    time.Duration `json:"ttl"`
	Tries  int           `json:"tries"` // 0: Lock
	Within time.Duration `json:"within"`
}

// run returns what the clients have got, and how many calls the store refused for another reason than that the name is
// held.
func (q *herd) run(ctx context.Context, peers []distlock.Locker) (got []distlock.Lock, refused int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	take := func(ask func(context.Context, string, ...distlock.Option) (distlock.Lock, error), name string) bool {
		ctx, cancel := context.WithTimeout(ctx, q.Within)
		defer cancel()
		l, err := ask(ctx, name, distlock.TTL(q.TTL), distlock.NoRenewal())
		mu.Lock()
		defer mu.Unlock()
		if err != nil { // mostly that the name is held
			if !errors.Is(err, distlock.ErrHeld) && ctx.Err() == nil {
				refused++
			}
			return false
		}
		if got = append(got, l); q.Tries == 0 && len(got) == len(q.Names) {
			time.AfterFunc(quiet, enough) // for a second that gets it
		}
		return true
	}
	for _, p := range peers {
		if q.Tries > 0 {
			all.Go(func() {
				for _, name := range q.Names {
					for left := q.Tries; left > 0 && !take(p.TryLock, name); left-- {
					}
				}
			})
			continue
		}
		for _, name := range q.Names {
			all.Go(func() { take(p.Lock, name) })
		}
	}
	all.Wait()
	return got, refused
}

// stampede has herds ask for names, round by round.
type stampede struct {
	*C
	waits    bool // by Lock
	clients  int
	names    int // of a round
	holder   *client
	peers    []distlock.Locker
	children []*process
	ends     int // that somebody has got the name after
}

// herds has names end in the midst of a herd: in every other round by Unlock.
func (c *C) herds(processes int, waits bool) {
	c.unmodelled()
	s := stampede{C: c, waits: waits, clients: herdClients / 4, names: herdNames / 4, holder: c.open("A")}
	enough := 1
	switch {
	case c.thorough():
		s.clients, s.names, enough = herdClients, herdNames, herdEnds
	case !c.Virtual(): // each client may take a connection for each name, and a stock server has a hundred
		s.names /= 2
	}
	for i := range processes {
		s.children = append(s.children, c.spawn(fmt.Sprint("child", i+1)))
	}
	each := s.clients / (1 + processes)
	for i := range each {
		s.peers = append(s.peers, c.open(fmt.Sprint("B", i+1)).locker)
	}
	for _, k := range s.children { // not in a round: a process that starts late would miss it
		k.must(childRequest{Op: "open", Clients: each, Within: patience}, "could not open its clients")
	}
	began := c.now()
	polls := waits && c.harness.Caps().Push != Yes // then waiters do not come in one moment after an Unlock
	asked := 0
	for n := 0; n < 2 || s.ends < enough && c.now()-began < c.budget()/2; n++ {
		if n == 0 && c.brief() {
			continue
		}
		asked += s.names
		s.round(n, n%2 == 1 && !polls)
	}
	if s.ends == 0 {
		c.Failf("none of %d names that ended was had again in %v", asked, c.now()-began)
	}
	c.Logf("%d of %d names that ended were had again, %d clients asking for each, in %v", s.ends, asked, s.clients, c.now()-began)
}

func (s *stampede) round(n int, unlocks bool) {
	ttl := s.ending(s.Unit() / 8)
	if unlocks {
		ttl = s.long()
	}
	held := make([]*lease, s.names)
	q := &herd{TTL: s.long(), Tries: 1, Within: patience}
	for j := range held {
		q.Names = append(q.Names, s.Name(fmt.Sprintf("n%d-%d", n, j)))
	}
	s.together(8, func(i int, _ *rand.Rand) {
		for j := i; j < s.names; j += 8 {
			held[j] = s.holder.mustTry(q.Names[j], "which is fresh", distlock.NoRenewal(), distlock.TTL(ttl))
		}
	})
	gone := held[0].gone()
	for _, h := range held {
		gone = max(gone, h.gone())
	}
	switch {
	case s.waits && unlocks:
		q.Tries, q.Within = 0, quiet+s.soon()
	case s.waits:
		q.Tries, q.Within = 0, max(0, gone-s.now())+s.soon()
	case unlocks:
		q.Tries = 3
	default:
		s.sleepUntil(gone)
	}
	if unlocks {
		s.Go(func() {
			if s.waits {
				s.sleep(quiet)
			}
			for _, h := range held {
				h.free()
			}
		})
	}
	who, mine := s.ask(q)
	s.judge(who, unlocks)
	s.together(8, func(i int, _ *rand.Rand) {
		for j := i; j < len(mine); j += 8 {
			_ = mine[j].Unlock(s.ctx) // the name is not used again
		}
	})
	for _, k := range s.children {
		k.ask(childRequest{Op: "drop"})
	}
}

// ask has the clients of all processes ask, and returns who holds each name, and the locks of this process.
//
// The holders are asked for when every process is through: all locks have been granted by then, and those that are held
// afterwards were so in that moment. What each process says when it is through proves nothing, because the lease that
// the first one tells of may end before the last one asks.
func (s *stampede) ask(q *herd) (who map[string][]string, mine []distlock.Lock) {
	refused := 0
	s.together(1+len(s.children), func(i int, _ *rand.Rand) {
		if i == 0 {
			mine, refused = q.run(s.ctx, s.peers)
			return
		}
		s.children[i-1].ask(childRequest{Op: "herd", Herd: q, Within: patience})
	})
	if refused > 0 { // a connection for each waiter may be more than the store takes
		s.names = max(1, s.names/2)
	}
	who = make(map[string][]string)
	for _, name := range holding(mine) {
		who[name] = append(who[name], "this process")
	}
	for _, k := range s.children {
		r, _, _ := k.ask(childRequest{Op: "holding"})
		for _, name := range r.Names {
			who[name] = append(who[name], k.who)
		}
	}
	return who, mine
}

// holding returns the names of those locks that are held.
func holding(locks []distlock.Lock) (names []string) {
	for _, l := range locks {
		if l.Err() == nil {
			names = append(names, l.Name())
		}
	}
	return names
}

func (s *stampede) judge(who map[string][]string, unlocks bool) {
	end := "its lease had ended"
	if unlocks {
		end = "its holder unlocked it"
	}
	for name, processes := range who {
		if len(processes) > 1 {
			s.breach("H1", "%d of the %d clients that asked for %q when %s hold it at once, in %v: a driver that looks in one step and acts in another does so; the test and the change must be one step",
				len(processes), s.clients, name, end, processes)
		}
	}
	s.ends += len(who)
}
