package main

import (
	"os"
	"strings"
	"testing"

	"github.com/distlock-go/distlock/internal/servers"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// With the lock every scene ends as it must, on each backend.
func TestScenes(t *testing.T) {
	servers.Each(t, func(t *testing.T, url string) {
		var out strings.Builder
		if err := demonstrate(t.Context(), []string{"--url", url}, &out); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
		t.Log(out.String())
		for _, s := range scenes {
			if n := strings.Count(out.String(), s.title); n != 2 {
				t.Errorf("%s was played %d times, want 2", s.name, n)
			}
		}
	})
}

func TestBadArguments(t *testing.T) {
	var out strings.Builder
	for _, args := range [][]string{{"--scene", "circus"}, {"--url", "foo://x", "--scene", "packets"}} {
		if err := demonstrate(t.Context(), args, &out); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
