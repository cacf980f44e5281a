package canary

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// threads are the files in which the kernel says for how long the threads of this process have waited for a processor. They
// stay open: to open one takes ten times as long as to read it, and every suite looks at all of them ten times a second.
type threads map[string]int

// waits returns for how long each thread has waited since its start. That of a wait under way is not in it. Without /proc
// there are none.
func (t threads) waits() map[string]time.Duration {
	dir, err := os.Open("/proc/self/task")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(0) // those before an error, if there is one
	all := make(map[string]time.Duration, len(names))
	for _, name := range names {
		if waited, ok := t.wait(name); ok {
			all[name] = waited
		}
	}
	for name := range t {
		if _, lives := all[name]; !lives {
			t.close(name)
		}
	}
	return all
}

// wait is not known of a thread that has ended.
func (t threads) wait(name string) (time.Duration, bool) {
	file, open := t[name]
	if !open {
		var err error
		if file, err = syscall.Open("/proc/self/task/"+name+"/schedstat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err != nil {
			return 0, false
		}
		t[name] = file
	}
	var text [64]byte
	n, err := syscall.Pread(file, text[:], 0) // time on a processor, waiting for one, turns
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(text[:n])
	if len(fields) != 3 {
		return 0, false
	}
	waited, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return time.Duration(waited), err == nil
}

func (t threads) close(name string) {
	_ = syscall.Close(t[name])
	delete(t, name)
}
