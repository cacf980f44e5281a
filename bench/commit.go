package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// commit returns the commit that is measured, with a plus if the tree has changes,
// or nothing where there is no repository.
func commit() string {
	id, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return ""
	}
	changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no", "--", "..").Output()
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
