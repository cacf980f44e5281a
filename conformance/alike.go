package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// What differs between two failures for one reason: names, numbers and clients.
var particulars = regexp.MustCompile(`"[^"]*"|[0-9][0-9a-zµ.]*|\b[A-Z][0-9]*\b`)

// gist is the first line of a reason without its particulars.
func gist(reason string) string {
	line, _, _ := strings.Cut(reason, "\n")
	return particulars.ReplaceAllString(line, "#")
}

// ending is the gist of the error that a reason ends with, or nothing: a driver that
// can do nothing fails every check with the same error, and in other words.
func ending(reason string) string {
	line, _, _ := strings.Cut(reason, "\n")
	if i := strings.LastIndex(line, ": "); i >= 0 && strings.Contains(line, "distlock: ") {
		return gist(line[i:])
	}
	return ""
}

// markAlike notes with the first of several checks that failed for one reason the IDs
// of the others.
func markAlike(results []Result) {
	first := make(map[string]int)
	for i, r := range results {
		if r.Status != Failed {
			continue
		}
		key := gist(r.Reason)
		if e := ending(r.Reason); e != "" && !strings.Contains(r.Reason, "held by another") {
			key = e
		}
		if at, ok := first[key]; ok {
			results[at].Alike = append(results[at].Alike, r.ID)
		} else {
			first[key] = i
		}
	}
}

// skips says why checks were skipped, each reason with the checks that it kept from
// running. What was skipped for want of a capability is for Gaps.
func (r Report) skips() []string {
	var reasons []string
	ids := make(map[string][]string)
	for _, res := range r.Results {
		if res.Status != Skipped || res.Missing != "" {
			continue
		}
		if ids[res.Reason] == nil {
			reasons = append(reasons, res.Reason)
		}
		ids[res.Reason] = append(ids[res.Reason], res.ID)
	}
	slices.Sort(reasons)
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%s (%s)", strings.Join(ids[reason], ", "), reason)
	}
	return reasons
}
