// Package procstat reads /proc/PID/stat, in which Linux says of each process its parent, its state and its time. Where there
// is no such file, no process is found.
package procstat

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Stat is what the kernel says of a process.
type Stat struct {
	PID    int
	Name   string        // of the program, 15 bytes of it
	Parent int           // 0 if the process is gone
	State  byte          // T is stopped, Z ended
	Ended  time.Duration // processor time of its children that have ended, in hundredths of a second
}

// All returns what there is of all processes. One may have ended meanwhile.
func All() (all []Stat) {
	folders, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	for _, folder := range folders {
		if pid, err := strconv.Atoi(filepath.Base(folder)); err == nil {
			all = append(all, Read(pid))
		}
	}
	return all
}

// Read returns what there is of one process.
func Read(pid int) Stat {
	s := Stat{PID: pid}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	// The name of the program is in brackets, and may contain some.
	from, at := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if err != nil || from < 0 || at < from {
		return s
	}
	const state, parent, cutime, cstime = 0, 1, 13, 14 // the places behind the name, see proc_pid_stat(5)
	fields := strings.Fields(string(text[at+1:]))
	if len(fields) <= cstime {
		return s
	}
	s.Name = string(text[from+1 : at])
	s.Parent, _ = strconv.Atoi(fields[parent])
	s.State = fields[state][0]
	for _, field := range []string{fields[cutime], fields[cstime]} {
		ticks, _ := strconv.Atoi(field)
		s.Ended += time.Duration(ticks) * time.Second / 100 // USER_HZ is 100 on every architecture of Go
	}
	return s
}
