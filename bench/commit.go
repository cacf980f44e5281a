package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// commit returns the last commit that has changed what is measured, with a plus if
// there are changes since, or nothing where there is no repository. The benchmarks
// themselves are left out.
func commit() string {
	measured := []string{"--", ":(top,glob)**/*.go", ":(top,glob)**/*.lua", ":(top,glob)**/*.sql", ":(top)go.mod", ":(top,exclude)bench"}
	id, err := exec.Command("git", append([]string{"log", "-1", "--format=%h", "--abbrev=12"}, measured...)...).Output()
	if err != nil {
		return ""
	}
	changed, err := exec.Command("git", append([]string{"status", "--porcelain", "--untracked-files=no"}, measured...)...).Output()
	if err == nil && len(changed) > 0 {
		return strings.TrimSpace(string(id)) + "+"
	}
	return strings.TrimSpace(string(id))
}

// load returns the load of the machine over the last minute, 0 where it is not known.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	return parseLoad(string(text))
}

func parseLoad(text string) float64 {
	first, _, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return v
}
