package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// start runs an instance, and returns its address and what stops it.
func start(t *testing.T, url string) (base string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, backends.Config{URL: url}, listener, 3*time.Second) }() // etcd cannot keep a second
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		testkit.Should(t, <-ended)
	}
	t.Cleanup(stop)
	return "http://" + listener.Addr().String(), stop
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	testkit.Must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	testkit.Must(t, err)
	return response.StatusCode, string(body)
}

// Of two instances one leads; when it stops, the other does. The metrics have the leader's
// lock and the job's.
func TestService(t *testing.T) {
	test := func(t *testing.T, url string) {
		leads := func(base string) bool {
			code, _ := get(t, base+"/leader")
			return code == http.StatusOK
		}
		first, stop := start(t, url)
		testkit.Until(t, "the first instance leads", func() bool { return leads(first) })
		second, _ := start(t, url)
		if leads(second) {
			t.Error("two instances lead")
		}
		backend, _, _ := strings.Cut(url, "://")
		for _, series := range []string{
			`distlock_lock_active{distlock_backend="` + backend + `",distlock_lock_name="service/leader",`,
			`distlock_lock_duration_seconds_count{distlock_backend="` + backend + `",distlock_end="unlocked",distlock_lock_name="gocron/report",`,
		} {
			testkit.Until(t, series, func() bool {
				_, one := get(t, first+"/metrics")
				_, two := get(t, second+"/metrics") // the job runs in either
				return strings.Contains(one+two, series)
			})
		}
		stop()
		testkit.Until(t, "the second instance leads", func() bool { return leads(second) })
	}
	t.Run("mem", func(t *testing.T) { test(t, "mem://service") })
	servers.Each(t, test)
}
