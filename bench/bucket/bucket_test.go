package bucket

import (
	"bytes"
	"maps"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/distlock-go/distlock/bench/result"
)

// The innermost frame that has a bucket decides, whatever is around it.
func TestOf(t *testing.T) {
	const (
		driver  = "github.com/distlock-go/distlock/redislock.(*claim).Try"
		worker  = "github.com/distlock-go/distlock.(*worker).run"
		library = "github.com/redis/go-redis/v9.(*baseClient).process"
		bench   = "github.com/distlock-go/distlock/bench/work.solo.func1"
		read    = "internal/poll.(*FD).Read"
	)
	for _, tc := range []struct {
		want  result.Bucket
		stack []string
	}{
		{result.SystemCalls, []string{"internal/runtime/syscall/linux.Syscall6", "syscall.RawSyscall6", "syscall.read", read, "net.(*conn).Read", library, driver, worker}},
		{result.SystemCalls, []string{"runtime.casgstatus", "runtime.exitsyscall", "syscall.Syscall", "syscall.write", library}},
		{result.Scheduler, []string{"internal/runtime/syscall/linux.Syscall6", "internal/runtime/syscall/linux.EpollWait", "runtime.netpoll", "runtime.findRunnable"}},
		{result.Scheduler, []string{"runtime.futex", "runtime.futexwakeup", "runtime.notewakeup", "runtime.startm", "runtime.wakep", "runtime.ready", "runtime.goready", "runtime.send", "runtime.chansend", worker}},
		{result.Scheduler, []string{"runtime.lock2", "runtime.schedule", "runtime.park_m", "runtime.mcall"}},
		{result.Scheduler, []string{"runtime.casgstatus", "internal/poll.runtime_pollWait", read, library}},
		{result.Scheduler, []string{"runtime.(*timer).modify", "time.resetTimer", "time.(*Timer).Reset", library}},
		{result.Scheduler, []string{"runtime.goschedImpl", "runtime.gopreempt_m", "runtime.newstack", "runtime.morestack", library}},
		{result.Memory, []string{"runtime.memclrNoHeapPointers", "runtime.mallocgcSmallNoscan", "runtime.mallocgc", "runtime.newobject", library, driver}},
		{result.Memory, []string{"runtime.scanobject", "runtime.gcDrain", "runtime.gcBgMarkWorker.func2", "runtime.systemstack", "runtime.gcBgMarkWorker"}},
		{result.Memory, []string{"runtime.memmove", "runtime.copystack", "runtime.newstack", "runtime.morestack", library}},
		{result.Library, []string{"runtime.memmove", "bufio.(*Writer).Write", library, driver, worker}},
		{result.Library, []string{"sync.(*Mutex).Lock", "database/sql.(*DB).conn", "github.com/distlock-go/distlock/mysqllock.(*driver).exec"}},
		{result.Library, []string{"google.golang.org/protobuf/proto.Marshal", "google.golang.org/grpc.encode", "go.etcd.io/etcd/client/v3.(*kv).Do", "github.com/distlock-go/distlock/etcdlock.(*claim).put"}},
		{result.Driver, []string{"strconv.FormatInt", driver, worker}},
		{result.Driver, []string{"github.com/redis/rueidis/rueidislock.(*locker).try", bench}},
		{result.Driver, []string{"github.com/go-zookeeper/zk.(*Lock).LockWithData", bench}},
		{result.Driver, []string{"github.com/bsm/redislock.(*Client).Obtain", bench}},
		{result.Portable, []string{"time.Now", worker}},
		{result.Portable, []string{"runtime.mapassign_faststr", "github.com/distlock-go/distlock.(*Client).Lock", "github.com/distlock-go/distlock/bench/peers.(*distlockClient).Lock", bench}},
		{result.Rest, []string{"time.Now", "time.Since", bench, "runtime.goexit"}},
		{result.Rest, nil},
	} {
		if got := Of(tc.stack); got != tc.want {
			t.Errorf("%q is %s, want %s", tc.stack, got, tc.want)
		}
	}
}

// synthetic returns a profile with one sample for each stack, innermost first, of
// the values that belong to it. The last two functions of a stack are at one
// location, as they are if one of them was inlined.
func synthetic(t *testing.T, types []string, samples map[string][]int64) *bytes.Buffer {
	t.Helper()
	p := new(profile.Profile)
	for _, name := range types {
		p.SampleType = append(p.SampleType, &profile.ValueType{Type: name, Unit: "count"})
	}
	for _, stack := range slices.Sorted(maps.Keys(samples)) {
		s := &profile.Sample{Value: samples[stack]}
		for i, name := range strings.Split(stack, " < ") {
			f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: name}
			p.Function = append(p.Function, f)
			if i > 1 {
				last := s.Location[len(s.Location)-1]
				last.Line = append(last.Line, profile.Line{Function: f})
				continue
			}
			l := &profile.Location{ID: uint64(len(p.Location) + 1), Line: []profile.Line{{Function: f}}}
			p.Location = append(p.Location, l)
			s.Location = append(s.Location, l)
		}
		p.Sample = append(p.Sample, s)
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestCPU(t *testing.T) {
	file := synthetic(t, []string{"samples", "cpu"}, map[string][]int64{
		"syscall.write < net.(*conn).Write < github.com/redis/go-redis/v9.write": {5, 50},
		"syscall.read < net.(*conn).Read":                                        {1, 10},
		"runtime.memmove < bufio.Write < github.com/redis/go-redis/v9.write":     {2, 20},
		"github.com/distlock-go/distlock.(*Client).Lock":                         {3, 30},
		"main.main": {1, 10},
	})
	p, err := CPU(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[result.Bucket]int64{result.SystemCalls: 6, result.Library: 2, result.Portable: 3, result.Rest: 1}
	if p.Samples != 12 || !maps.Equal(p.Spent, want) {
		t.Errorf("of %d samples the buckets have %v, want 12 and %v", p.Samples, p.Spent, want)
	}
	total := 0.0
	for _, b := range result.Buckets {
		total += p.Share(b)
	}
	if total < 0.999 || total > 1.001 {
		t.Errorf("together the buckets have %v of the time", total)
	}
	for _, text := range []string{"", "no profile"} {
		if _, err := CPU(strings.NewReader(text)); err == nil {
			t.Errorf("%q is a CPU profile", text)
		}
	}
}

func TestHeap(t *testing.T) {
	samples := map[string][]int64{
		"runtime.newobject < a.New < a.Lock":                         {1, 900, 1, 300},
		"runtime.mallocgc < internal/runtime/maps.grow < a.New < b.": {1, 100, 1, 100},
		"b.New": {1, 9000, 1, 200},
		"c.New": {1, 500, 0, 0},
	}
	types := []string{"alloc_objects", "alloc_space", "inuse_objects", "inuse_space"}
	sites, err := Heap(synthetic(t, types, samples), 10, 2)
	if want := []result.Site{{Function: "a.New", Bytes: 40}, {Function: "b.New", Bytes: 20}}; err != nil || !slices.Equal(sites, want) {
		t.Errorf("the sites are %v, want %v (%v)", sites, want, err)
	}
	if _, err := Heap(synthetic(t, []string{"samples"}, map[string][]int64{"a": {1}}), 10, 2); err == nil {
		t.Error("a profile without bytes in use is one of the heap")
	}
	if _, err := Heap(strings.NewReader("no profile"), 1, 1); err == nil {
		t.Error("a text is a heap profile")
	}
}

// What the runtime of today writes can be read: its frames are what the rules are
// about, and a rule that fits nothing any more would be unseen.
func TestRealProfile(t *testing.T) {
	var keep []byte
	for range 50 {
		var file bytes.Buffer
		if err := pprof.StartCPUProfile(&file); err != nil {
			t.Skip("another profile is being taken:", err)
		}
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
			keep = make([]byte, 1<<20)
		}
		pprof.StopCPUProfile()
		p, err := CPU(&file)
		if err != nil {
			t.Fatal(err)
		}
		if p.Samples < 10 {
			continue // the machine had no time for us
		}
		if p.Spent[result.Memory] == 0 {
			t.Errorf("nothing but allocation has left %d samples in %v", p.Samples, p.Spent)
		}
		return
	}
	t.Skipf("there were never ten samples of allocating %d bytes", len(keep))
}
