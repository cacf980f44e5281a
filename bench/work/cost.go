package work

import (
	"errors"
	"os"
	"runtime/pprof"
	"time"

	"github.com/distlock-go/distlock/bench/result"
)

// measure runs what a row measures, when all is warm, and returns what each of the
// pairs of lock and unlock that it has done costs the processors: in this process,
// and in those of the servers, where these are known. A CPU profile is of just this.
func (s *session) measure(run func() (pairs float64, err error)) (Figures, error) {
	stop, err := s.cpuProfile()
	if err != nil {
		return nil, err
	}
	own, _ := processorTime()
	theirs, _ := timeOf(s.PIDs)
	pairs, err := run()
	ownAfter, ownKnown := processorTime()
	theirsAfter, theirsKnown := timeOf(s.PIDs)
	if err = errors.Join(err, stop()); err != nil {
		return nil, err
	}
	f := make(Figures)
	if pairs == 0 {
		return nil, errStarved
	}
	each := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) / pairs }
	if ownKnown {
		f[result.Work] = each(ownAfter - own)
	}
	if theirsKnown {
		f[result.Busy] = each(theirsAfter - theirs)
	}
	return f, nil
}

// cpuProfile starts a profile, if one is wanted, and returns what ends it.
func (s *session) cpuProfile() (stop func() error, err error) {
	if s.CPUProfile == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(s.CPUProfile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// fineHeap is how many bytes are allocated from one sample of a heap profile to the
// next: a held lock is of about a thousand.
const fineHeap = 512

// heapProfile writes what is in memory, if that is wanted. A collection must have
// ended before: the profile is as of the last one.
func (s *session) heapProfile() error {
	if s.HeapProfile == "" {
		return nil
	}
	f, err := os.Create(s.HeapProfile)
	if err != nil {
		return err
	}
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}
