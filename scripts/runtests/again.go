package main

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"
)

// inconclusive begins the last words of a test that has learnt nothing, because the machine or the store was late. Such a
// test has failed (testkit.Within) or was skipped (a check of the suite).
const inconclusive = "inconclusive: "

// final follows in a test that ends by it. What its clean-ups say afterwards, of the same machine, are not its last words.
const final = inconclusive + "nothing more is tested: "

// maxAgain bounds what is run again. A machine that is late for more of them will be late again.
const maxAgain = 10

// runAgain runs what was inconclusive once more, alone, when all else has ended: first what has failed by that, as the whole then has.
// What it finds then counts.
func runAgain(ctx context.Context, o options, parts []*part) {
	type test struct {
		*part
		test string
	}
	var failed, skipped []test
	for _, p := range parts {
		for _, name := range p.unsure {
			if slices.Contains(p.tests, name) {
				failed = append(failed, test{p, name})
			} else {
				skipped = append(skipped, test{p, name})
			}
		}
	}
	all := append(failed, skipped...)
	for _, t := range all[:min(len(all), maxAgain)] {
		o.run = pattern(t.test)
		r := runOne(ctx, o, t.part)
		if ctx.Err() != nil {
			return
		}
		t.takeIn(t.test, r)
		report(o.out, o, &part{name: t.name + " " + t.test + ", once more", result: r})
	}
}

// takeIn replaces what is known of a test by what a run of it alone has found.
func (r *result) takeIn(name string, alone result) {
	r.took, r.cpu = r.took+alone.took, r.cpu+alone.cpu
	this := func(other string) bool { return other == name }
	switch {
	case slices.Contains(alone.passed, name) && !alone.failed: // a pattern that matches nothing passes, too
		r.unsure = slices.DeleteFunc(r.unsure, this)
		if slices.Contains(r.tests, name) { // a program may also have failed without a word
			r.tests = slices.DeleteFunc(r.tests, this)
			r.failed = len(r.tests) > 0
		}
	case !alone.failed || slices.Contains(alone.unsure, name): // nothing was learnt, or it is not in every sample
	default:
		r.unsure = slices.DeleteFunc(r.unsure, this)
		r.failed, r.tests = true, append(slices.DeleteFunc(r.tests, this), name)
	}
}

// pattern is the value of -test.run for one test.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, s := range parts {
		parts[i] = "^" + regexp.QuoteMeta(s) + "$"
	}
	return strings.Join(parts, "/")
}

// verdict is what the output of -v tells of one test.
type verdict struct {
	name, outcome string // PASS, FAIL or SKIP
	words         string // the first line of the last that it has said
}

// entry is the first line of what a test says; those that follow are indented by more.
var entry = regexp.MustCompile(`^    [\w.-]+\.go:\d+: (.*)$`)

// verdicts returns what is told of each test that has ended, in that order.
func verdicts(text []byte) (all []verdict) {
	words := make(map[string]string)
	speaker := ""
	for line := range bytes.Lines(text) {
		if outcome, name, ok := mark(string(line)); ok && outcome != "" {
			all = append(all, verdict{name, outcome, words[name]})
		} else if ok {
			speaker = name
		} else if m := entry.FindStringSubmatch(strings.TrimRight(string(line), "\n")); m != nil && !strings.HasPrefix(words[speaker], final) {
			words[speaker] = m[1]
		}
	}
	return all
}

// marks are the lines with which a test begins, goes on or ends: "=== RUN   TestX", or "    --- FAIL: TestX/y (0.00s)".
var marks = regexp.MustCompile(`^ *(?:=== (?:RUN|CONT|NAME|PAUSE)|--- (PASS|FAIL|SKIP):) +(\S+)`)

// mark returns the test that a line is a mark of, and its outcome if it has ended.
func mark(line string) (outcome, name string, ok bool) {
	if m := marks.FindStringSubmatch(line); m != nil {
		return m[1], m[2], true
	}
	return "", "", false
}

// judge takes the outcome of a program out of its output.
func (r *result) judge(text []byte) {
	all := verdicts(text)
	below := func(name string) bool { // a test within it has failed
		return slices.ContainsFunc(all, func(v verdict) bool { return v.outcome == "FAIL" && strings.HasPrefix(v.name, name+"/") })
	}
	outspoken := func(name string) bool { // a test around it has a reason of its own to fail
		return slices.ContainsFunc(all, func(v verdict) bool {
			return v.outcome == "FAIL" && v.words != "" && strings.HasPrefix(name, v.name+"/")
		})
	}
	for _, v := range all {
		unsure := strings.HasPrefix(v.words, inconclusive) && !crashed(text)
		switch {
		case v.outcome == "PASS":
			r.passed = append(r.passed, v.name)
		case v.outcome == "SKIP" && unsure:
			r.unsure = append(r.unsure, v.name)
		case v.outcome == "SKIP":
			r.skipped++
		case !below(v.name):
			r.tests = append(r.tests, v.name)
			if unsure && !outspoken(v.name) {
				r.unsure = append(r.unsure, v.name)
			}
		}
	}
}
