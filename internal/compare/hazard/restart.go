package hazard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/driver"
	"github.com/distlock-go/distlock/internal/compare/report"
)

// restartBound is for the start of a server on a machine busy with others.
const restartBound = 2 * time.Minute

// stay is a lock held while its server is restarted.
type stay struct {
	holder, rival distlock.Locker
	name          string
	lock          distlock.Lock
	watch         *watch
	ttl, lease    time.Duration // asked for, and granted at the least
	patience      time.Duration

	taken   chan successor // one element: the rival has got the name
	refused atomic.Int64   // when the rival was last told that somebody has it
	over    chan struct{}  // closed when the rival does not ask any more
	quit    context.CancelFunc
}

// serverRestart kills the server while locks are held, and starts it again on its
// data. The holders and their rivals are there before and after.
func serverRestart(ctx context.Context, e *env) (report.Outcome, error) {
	stays := make([]*stay, e.repeats)
	defer func() {
		for _, s := range stays {
			if s != nil {
				s.end()
			}
		}
	}()
	for i := range stays {
		var err error
		if stays[i], err = e.settle(ctx, fmt.Sprintf("%srestart/%d", e.prefix, i)); err != nil {
			return report.Outcome{}, err
		}
	}
	bounded, cancel := context.WithTimeout(ctx, restartBound)
	defer cancel()
	killed := machineNow()
	if err := e.rig.Control.Kill(bounded); err != nil {
		return report.Outcome{}, err
	}
	if err := e.rig.Control.Restart(bounded); err != nil {
		return report.Outcome{}, err
	}
	up := machineNow()
	trials := make([]trial, len(stays))
	err := each(len(stays), func(i int) error {
		var err error
		trials[i], err = stays[i].outcome(ctx, up)
		return err
	})
	if err != nil {
		return report.Outcome{}, err
	}
	lease := slices.MinFunc(stays, func(a, b *stay) int { return cmp.Compare(a.lease, b.lease) }).lease
	return judgeRestart(trials, up-killed, e.restartTTL, lease, e.caps.Durability), nil
}

// judgeRestart tells what a server that was away for so long has made of its locks. One that was lost without a flaw
// says nothing if it could not have been renewed in time: the last renewal may be a third of the TTL before the end of the server.
func judgeRestart(trials []trial, away, ttl, lease time.Duration, class driver.Durability) report.Outcome {
	kept := 0
	lost := slices.DeleteFunc(trials, func(t trial) bool {
		if t.kept {
			kept++
		}
		return t.kept
	})
	detail := fmt.Sprintf("server killed (SIGKILL) and started again on its data, as it is configured here, while %d locks were held with a TTL of %v; "+
		"it was away for %s; %d kept", len(trials), ttl, span(away), kept)
	if len(lost) == 0 && class == driver.Volatile {
		return report.Outcome{Verdict: report.Caution, Text: "kept this time",
			Detail: detail + ". The process was killed, and not the machine, and a store of the class volatile may forget its locks all the same"}
	}
	if len(lost) == 0 {
		return report.Outcome{Verdict: report.Good, Text: "kept", Detail: detail}
	}
	o := judge(lost, detail, func(ds []time.Duration) (report.Verdict, string) {
		return report.Caution, "lost, told " + span(slices.Min(ds)) + " before"
	})
	if o.Verdict == report.Bad || away < lease-ttl/3 {
		return o
	}
	than := "longer than"
	if away < lease {
		than = "nearly as long as"
	}
	return report.Outcome{Verdict: report.Unmeasured, Detail: o.Detail,
		Text: fmt.Sprintf("not measured: the server was away for %s, %s a lock of %v lasts", span(away), than, lease.Round(time.Second/10))}
}

// settle has a lock held and somebody else ask for it again and again.
func (e *env) settle(ctx context.Context, name string) (*stay, error) {
	s := &stay{name: name, ttl: e.restartTTL, patience: e.patience, taken: make(chan successor, 1), over: make(chan struct{})}
	var err error
	if s.holder, err = e.open(ctx, e.restartTTL); err != nil {
		return nil, err
	}
	if s.rival, err = e.open(ctx, e.restartTTL); err != nil {
		release(s.holder)
		return nil, err
	}
	asked := machineNow()
	if s.lock, err = s.holder.Lock(ctx, name, distlock.TTL(s.ttl)); err != nil {
		release(s.holder, s.rival)
		return nil, err
	}
	s.lease = belief{Asked: asked, Deadline: machineAt(s.lock.Deadline())}.lease(s.ttl)
	s.watch = watching(ctx, s.lock, asked)
	ctx, s.quit = context.WithCancel(ctx)
	go s.compete(ctx)
	return s, nil
}

func (s *stay) compete(ctx context.Context) {
	defer close(s.over)
	for ctx.Err() == nil {
		asked := machineNow()
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		lock, err := s.rival.TryLock(bounded, s.name, distlock.TTL(s.ttl))
		cancel()
		if err == nil {
			s.taken <- successor{lock: lock, at: machineNow()}
			return
		}
		if errors.Is(err, distlock.ErrHeld) {
			s.refused.Store(int64(asked))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *stay) end() {
	s.quit()
	<-s.over
	s.watch.stop()
	release(s.holder, s.rival)
}

// outcome returns what has become of the lock, since the server is up again.
func (s *stay) outcome(ctx context.Context, up time.Duration) (trial, error) {
	before := s.lock.Deadline()
	stuck := time.NewTimer(s.lease + lagOf(s.rival) + s.patience)
	defer stuck.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case n := <-s.taken:
			t, err := s.watch.verdict(ctx, s.lock, n, 0, s.patience)
			if t.flaw != "" {
				t.flaw = "lost and " + t.flaw
			}
			return t, err
		case <-stuck.C:
			if err := s.lock.Err(); err != nil {
				return trial{flaw: "lost, and nobody could hold for " + span(s.lease+s.patience)}, nil
			}
			return trial{flaw: "neither renewed nor lost"}, nil
		case <-ctx.Done():
			return trial{}, ctx.Err()
		case <-tick.C:
		}
		renewed := s.lock.Err() == nil && s.lock.Deadline().After(before)
		if renewed && time.Duration(s.refused.Load()) > up {
			return s.handOn(ctx)
		}
	}
}

// handOn passes a lock on that was kept: it must be the holder's to give, and the
// token must rise.
func (s *stay) handOn(ctx context.Context) (trial, error) {
	s.quit()
	<-s.over
	select {
	case n := <-s.taken:
		return s.watch.verdict(ctx, s.lock, n, 0, s.patience)
	default:
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.lock.Unlock(bounded); err != nil {
		return trial{}, err
	}
	next, err := s.rival.Lock(bounded, s.name, distlock.TTL(s.ttl))
	switch {
	case err != nil:
		return trial{}, err
	case next.Token() <= s.lock.Token():
		return trial{flaw: fmt.Sprintf("kept, but a stale write goes through: token %d was followed by %d", s.lock.Token(), next.Token())}, nil
	}
	return trial{kept: true}, nil
}
