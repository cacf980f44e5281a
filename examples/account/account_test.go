package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// TestMain lets the test binary be its own worker processes.
func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		work(os.Stdin, os.Stdout)
		return
	}
	workers = 5 // under -race a process costs much
	os.Exit(m.Run())
}

// spent is the balance when all have withdrawn.
func spent() int { return opening - amount*workers }

// testTTL is short, for the sake of the modes that outlast it, and long enough for workers that connect at once. A worker that loses
// its lock because the machine is busy is refused, and withdraws again.
const testTTL = backends.Duration(10 * time.Second)

func TestModes(t *testing.T) {
	// Nobody takes a lock in the first two, whatever the backend. For none to be lost, or turned away,
	// the processes that were told to begin at the same time would have to have computed for
	// 100 ms one after another.
	for _, m := range modes[:2] {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			r := played(t, m, settings{ttl: testTTL})
			if balance, _ := r.account.state(); balance == spent() {
				t.Error("all withdrawals at the same time went well without a lock")
			}
		})
	}
	for _, kind := range servers.Some() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel() // they wait for leases
			s := settings{url: servers.ForTest(t, kind).PatientURL(), ttl: testTTL}
			for _, m := range modes[2:] {
				t.Run(m.name, func(t *testing.T) {
					if m.name == "outlast" || m.name == "fenced" {
						t.Parallel() // most of their time is one worker's
					}
					r := played(t, m, s)
					checkAttempts(t, r.crew.attempts())
					check(t, m, r.crew.attempts())
				})
			}
		})
	}
}

// played is a run that has shown what it is there to show.
func played(t *testing.T, m mode, s settings) *run {
	t.Helper()
	r, err := playMode(t.Context(), m, s)
	testkit.Must(t, err)
	r.print(t.Output())
	if err := r.verdict(); err != nil {
		t.Error(err)
	}
	return r
}

// checkAttempts checks what is true of all runs under a lock: one at a time, each with
// a higher token, and each reads what the one before has written.
func checkAttempts(t *testing.T, all []attempt) {
	t.Helper()
	balance := opening
	for i, v := range all {
		if i > 0 && v.from.Before(all[i-1].to) {
			t.Errorf("worker %d held the lock from %v, worker %d until %v", v.worker, v.from, all[i-1].worker, all[i-1].to)
		}
		if i > 0 && v.token <= all[i-1].token {
			t.Errorf("worker %d got the token %d after %d", v.worker, v.token, all[i-1].token)
		}
		if v.read != balance {
			t.Errorf("worker %d read %d, want %d", v.worker, v.read, balance)
		}
		if !v.refused {
			balance = v.result
		}
	}
}

// check checks that a run did what its mode is about.
func check(t *testing.T, m mode, all []attempt) {
	t.Helper()
	first, last := all[0], all[len(all)-1]
	switch m.name {
	case "outlast":
		if first.worker != 1 || !first.to.After(first.lease) {
			t.Errorf("worker %d was first and held the lock until %v, want worker 1 to hold it for longer than its lease, %v",
				first.worker, first.to, first.lease)
		}
	case "try":
		if last.result == spent() {
			t.Error("all got the lock at the first look")
		}
	case "fenced":
		if first.worker != 1 || !first.refused || last.worker != 1 || last.refused {
			t.Errorf("worker %d was first (refused %v) and worker %d last (refused %v), want worker 1, refused, and worker 1 again",
				first.worker, first.refused, last.worker, last.refused)
		}
		if len(all) != workers+1 {
			t.Errorf("the lock was held %d times, want %d", len(all), workers+1)
		}
	}
}

func TestFence(t *testing.T) {
	a := &account{balance: 10}
	url, stop, err := a.open()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	r, ctx := remote(url), t.Context()
	write := func(balance int, token int64, want error) {
		t.Helper()
		if err := r.write(ctx, balance, token, nil); !errors.Is(err, want) {
			t.Errorf("writing with token %d: %v, want %v", token, err, want)
		}
	}
	write(9, 0, nil)
	write(8, 5, nil)
	write(7, 5, nil)
	write(1, 4, errStale)
	write(1, 0, errStale)
	if b, _, err := r.read(ctx, 6); b != 7 || err != nil {
		t.Errorf("read %d, %v, want 7", b, err)
	}
	write(1, 5, errStale) // although 6 has only read so far
	if _, _, err := r.read(ctx, 5); !errors.Is(err, errStale) {
		t.Errorf("reading with a stale token: %v", err)
	}
	if balance, refused := a.state(); balance != 7 || refused != 3 {
		t.Errorf("the balance is %d and %d writes were refused, want 7 and 3", balance, refused)
	}
}

func TestHelpHidesPassword(t *testing.T) {
	t.Setenv(backends.EnvURL, "redis://:s3cret@127.0.0.1:1?tll=3s")
	var out strings.Builder
	if err := demonstrate(t.Context(), []string{"--help"}, &out); err != nil || !strings.Contains(out.String(), "-url") {
		t.Errorf("--help prints %q, %v", out.String(), err)
	}
	err := demonstrate(t.Context(), nil, &out)
	if err == nil || !strings.Contains(err.Error(), "unknown parameter") || strings.Contains(err.Error()+out.String(), "s3cret") {
		t.Errorf("the error is %v after %s", err, out.String())
	}
}

func TestRefusedArguments(t *testing.T) {
	t.Setenv(backends.EnvURL, "")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--url", "mem://"}, "the memory of one process"},
		{[]string{"--url", "mem://", "--mode", "x"}, `no mode "x"`},
		{[]string{"--url", "mem://", "x"}, "no arguments but flags"},
		{[]string{"--url", "redis://:s3cret@127.0.0.1:1?tll=3s"}, "unknown parameter"},
		{nil, "no --url"},
	} {
		err := demonstrate(t.Context(), tc.args, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error is %v, want one that says %q", tc.args, err, tc.want)
		}
	}
}

// A worker that cannot go on is an error of the run, not one that hangs.
func TestWorkerFails(t *testing.T) {
	_, err := playMode(t.Context(), modes[4], settings{url: "mem://x?tll=1s", ttl: testTTL})
	if err == nil || !strings.Contains(err.Error(), "unknown parameter") {
		t.Errorf("the error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = playMode(ctx, modes[0], settings{}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want that of the context", err)
	}
}
