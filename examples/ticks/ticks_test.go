package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestMain lets the test binary be its own node processes.
func TestMain(m *testing.M) {
	if job := os.Getenv(nodeEnv); job != "" {
		work(job)
		return
	}
	os.Exit(m.Run())
}

func TestModes(t *testing.T) {
	for _, kind := range servers.Some() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel() // they wait for the ticks
			url := servers.ForTest(t, kind).PatientURL()
			testkit.Must(t, checkBackend(t.Context(), url))
			for _, mode := range []string{plain, once} {
				t.Run(mode, func(t *testing.T) {
					t.Parallel()
					r, err := play(t.Context(), mode, settings{url, 3 * time.Second, 3})
					testkit.Must(t, err)
					r.print(t.Output())
					if err := r.verdict(); err != nil {
						t.Error(err)
					}
					// For none to be run again, three processes would have to be late by just as much.
					if ticks := len(r.byTick()); mode == plain && len(r.done) == ticks {
						t.Errorf("under a plain lock the job ran once in each of %d ticks", ticks)
					}
					for _, c := range r.done {
						if c.Node == r.killed && c.At.After(r.at.Add(time.Second)) {
							t.Errorf("node %d ran after it was killed", c.Node)
						}
					}
				})
			}
		})
	}
}

func TestRefusedArguments(t *testing.T) {
	t.Setenv("DISTLOCK_URL", "")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--url", "mem://"}, "the memory of one process"},
		{[]string{"--url", "mem://", "--tick", "1s"}, "too close"},
		{[]string{"--url", "redis://:s3cret@127.0.0.1:1?tll=3s"}, "unknown parameter"},
		{nil, "no --url"},
	} {
		var out strings.Builder
		err := demonstrate(t.Context(), tc.args, &out)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error()+out.String(), "s3cret") {
			t.Errorf("%q: the error is %v, want one that says %q", tc.args, err, tc.want)
		}
	}
}
