// Package bucket reads profiles of processes that use a lock library, and sorts what
// they show into a few buckets that can stand side by side in a table.
//
// A sample of a CPU profile is a stack. It is looked at from the innermost frame
// outwards, and the first frame that has a bucket decides. So a system call is one
// whoever made it, and so is an allocation, but copying memory, say, belongs to the
// code that copies:
//
//   - system calls: package syscall, but for what the runtime itself asks of the
//     system;
//   - scheduler: the functions of the runtime that put goroutines and threads to
//     sleep, wake, start and end them, poll the network, and keep timers; channels,
//     select, and the waits of package sync;
//   - memory: those that allocate, collect garbage, and grow stacks;
//   - client library: what speaks to the store;
//   - driver: the driver of distlock, or the lock library of a peer;
//   - portable half: the root package of distlock;
//   - rest: no frame has a bucket; the benchmark itself, for example.
//
// All other functions of the runtime and of the standard library have no bucket.
package bucket

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/distlock-go/distlock/bench/result"
)

const module = "github.com/distlock-go/distlock"

// rule gives a bucket to the functions whose names begin so.
type rule struct {
	bucket result.Bucket
	starts []string
}

// rules in the order in which they are asked; the first that fits a frame decides.
var rules = []rule{
	{result.Scheduler, []string{
		"internal/runtime/syscall/linux.Epoll", "internal/runtime/syscall.Epoll", "runtime.netpoll", "runtime.epoll", "runtime.kevent",
		"internal/runtime/syscall/linux.Eventfd", "runtime.futex", "runtime.pthread_cond", "runtime.sema", "runtime.note",
		"runtime.park_m", "runtime.gopark", "runtime.goready", "runtime.ready", "runtime.injectglist",
		"runtime.schedule", "runtime.findRunnable", "runtime.findrunnable", "runtime.stealWork", "runtime.checkRunqs", "runtime.checkTimers",
		"runtime.runq", "runtime.globrunq", "runtime.execute", "runtime.gogo", "runtime.mcall", "runtime.gosched", "runtime.goschedImpl",
		"runtime.gopreempt", "runtime.preempt", "runtime.asyncPreempt", "runtime.resetspinning", "runtime.wakep", "runtime.pidle", "runtime.mPark",
		"runtime.startm", "runtime.stopm", "runtime.mput", "runtime.mget", "runtime.acquirep", "runtime.releasep", "runtime.handoffp",
		"runtime.exitsyscall0", "runtime.newproc", "runtime.goexit0", "runtime.gdestroy", "runtime.gfget", "runtime.gfput",
		"runtime.sysmon", "runtime.retake", "runtime.usleep", "runtime.osyield", "runtime.newm", "runtime.mstart", "runtime.clone",
		"runtime.chan", "runtime.send", "runtime.recv", "runtime.closechan", "runtime.selectgo", "runtime.selectnb", "runtime.sellock", "runtime.selunlock",
		"runtime.block", "runtime.semacquire", "runtime.semrelease", "runtime.readyWithTime", "runtime.(*semaRoot)", "runtime.notifyList",
		"runtime.(*timer)", "runtime.(*timers)", "time.Sleep", "runtime.goroutineReady", "runtime.resettimer", "runtime.stoptimer",
		"sync.runtime_Sem", "sync.runtime_notify", "internal/sync.runtime_", "internal/poll.runtime_", "time.newTimer", "time.stopTimer", "time.resetTimer",
	}},
	{result.Memory, []string{
		"runtime.malloc", "runtime.newobject", "runtime.newarray", "runtime.makeslice", "runtime.growslice", "runtime.rawbyteslice", "runtime.rawstring",
		"runtime.makemap", "runtime.makechan", "runtime.nextFree", "runtime.(*mcache)", "runtime.(*mcentral)", "runtime.(*mheap)", "runtime.(*mspan)",
		"runtime.(*pageAlloc)", "runtime.(*fixalloc)", "runtime.(*sweep", "runtime.(*activeSweep)", "runtime.(*unwinder)",
		"runtime.gc", "runtime._GC", "runtime.(*gc", "runtime.bgsweep", "runtime.bgscavenge", "runtime.sweepone", "runtime.scan", "runtime.grey", "runtime.markroot",
		"runtime.wbBuf", "runtime.wbMove", "runtime.wbZero", "runtime.bulkBarrier", "runtime.typeBitsBulkBarrier", "runtime.deductAssistCredit", "runtime.(*limiter",
		"runtime.newstack", "runtime.morestack", "runtime.copystack", "runtime.stackalloc", "runtime.stackfree", "runtime.stackcache", "runtime.stackpool", "runtime.shrinkstack", "runtime.adjust",
		"runtime.profilealloc", "runtime.addspecial", "runtime.runfinq", "runtime.runCleanups", "runtime.stopTheWorld", "runtime.startTheWorld", "runtime.sysUsed", "runtime.sysUnused", "runtime.madvise",
	}},
	{result.SystemCalls, []string{"syscall.", "golang.org/x/sys/unix."}},
	{result.Driver, []string{
		module + "/redislock.", module + "/mysqllock.", module + "/zklock.", module + "/etcdlock.",
		"github.com/bsm/redislock.", "github.com/go-redsync/redsync/", "github.com/redis/rueidis/rueidislock.",
		"github.com/go-zookeeper/zk.(*Lock).", "go.etcd.io/etcd/client/v3/concurrency.",
	}},
	{result.Portable, []string{module + "."}},
	{result.Library, []string{
		"github.com/redis/", "github.com/go-sql-driver/mysql.", "database/sql", "github.com/go-zookeeper/zk.",
		"go.etcd.io/", "google.golang.org/", "golang.org/x/net/", "go.uber.org/",
	}},
}

// Of returns the bucket of a stack of function names, innermost first.
func Of(stack []string) result.Bucket {
	for _, function := range stack {
		for _, r := range rules {
			for _, start := range r.starts {
				if strings.HasPrefix(function, start) {
					return r.bucket
				}
			}
		}
	}
	return result.Rest
}

// CPU reads a CPU profile.
func CPU(r io.Reader) (*result.Profile, error) {
	p, err := profile.Parse(r)
	if err != nil {
		return nil, fmt.Errorf("CPU profile: %w", err)
	}
	sum := &result.Profile{Spent: make(map[result.Bucket]int64)}
	for _, s := range p.Sample {
		n := s.Value[0] // how many samples there were of it; Value[1] is the time that they stand for
		sum.Samples += n
		sum.Spent[Of(frames(s))] += n
	}
	return sum, nil
}

// frames returns the names of the functions of a sample, innermost first, those that
// were inlined included.
func frames(s *profile.Sample) []string {
	var names []string
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	return names
}

// Heap reads a heap profile that was taken while locks were held, and returns the
// most functions that have the most bytes in use. A function is the innermost one
// outside of the runtime.
func Heap(r io.Reader, locks float64, most int) ([]result.Site, error) {
	p, err := profile.Parse(r)
	if err != nil {
		return nil, fmt.Errorf("heap profile: %w", err)
	}
	inUse := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == "inuse_space" })
	if inUse < 0 {
		return nil, fmt.Errorf("heap profile: it does not tell what is in use")
	}
	bytes := make(map[string]float64)
	for _, s := range p.Sample {
		bytes[site(frames(s))] += float64(s.Value[inUse])
	}
	sites := make([]result.Site, 0, len(bytes))
	for function, n := range bytes {
		sites = append(sites, result.Site{Function: function, Bytes: n / locks})
	}
	slices.SortFunc(sites, func(a, b result.Site) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Function, b.Function))
	})
	return sites[:min(most, len(sites))], nil
}

func site(stack []string) string {
	for _, function := range stack {
		if !strings.HasPrefix(function, "runtime.") && !strings.HasPrefix(function, "internal/runtime/") {
			return function
		}
	}
	return "runtime"
}
