package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/servers"
)

// run is a run of OpenTofu at one of the servers.
type run struct {
	t   *testing.T
	url string
	id  string
}

func (r run) send(method, query, body string) (int, string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.url+"/prod"+query, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func (r run) want(status int, method, query, body string) string {
	r.t.Helper()
	got, text := r.send(method, query, body)
	if got != status {
		r.t.Errorf("%s %s by %s: status %d, want %d: %s", method, query, r.id, got, status, text)
	}
	return text
}

// body is what the run sends with LOCK and UNLOCK, as OpenTofu 1.10 does.
func (r run) body() string {
	return fmt.Sprintf(`{"ID":%q,"Operation":"OperationTypeApply","Info":"","Who":"me@host","Version":"1.10.0","Created":"2026-11-22T09:00:00Z","Path":""}`, r.id)
}

// Two servers over one folder, three runs: the messages of the protocol.
func TestProtocol(t *testing.T) {
	servers.Each(t, func(t *testing.T, url string) {
		dir := t.TempDir()
		a := run{t, newServer(t, dir, url), "run-a"}
		b := run{t, newServer(t, dir, url), "run-b"}

		a.want(http.StatusNoContent, "GET", "", "")
		a.want(http.StatusOK, "LOCK", "", a.body())
		var holder info
		if err := json.Unmarshal([]byte(b.want(http.StatusLocked, "LOCK", "", b.body())), &holder); err != nil {
			t.Fatal(err)
		}
		if holder.ID != "run-a" || holder.Who != "me@host" || holder.Operation != "OperationTypeApply" {
			t.Errorf("the holder is %+v", holder)
		}
		b.want(http.StatusLocked, "POST", "?ID=run-b", `{"by":"b"}`)
		b.want(http.StatusLocked, "POST", "", `{"by":"b without a lock"}`)
		a.want(http.StatusOK, "POST", "?ID=run-a", `{"by":"a"}`)
		b.want(http.StatusLocked, "UNLOCK", "", b.body())
		a.want(http.StatusOK, "UNLOCK", "", a.body())

		b.want(http.StatusOK, "LOCK", "", b.body())
		if state := b.want(http.StatusOK, "GET", "", ""); state != `{"by":"a"}` {
			t.Errorf("the state is %s", state)
		}
		// force-unlock of OpenTofu sends the ID, here to the other server.
		a.want(http.StatusOK, "UNLOCK", "", `{"ID":"run-b"}`)
		a.want(http.StatusOK, "LOCK", "", a.body())
		b.want(http.StatusLocked, "POST", "?ID=run-b", `{"by":"a stale run"}`) // its lock was taken away
		// That of Terraform sends nothing.
		a.want(http.StatusOK, "UNLOCK", "", "")
		a.want(http.StatusOK, "UNLOCK", "", "")
		a.want(http.StatusLocked, "POST", "?ID=run-a", `{"by":"a stale run"}`)
		b.want(http.StatusOK, "DELETE", "", "")
		a.want(http.StatusNoContent, "GET", "", "")
	})
}

func TestBadRequests(t *testing.T) {
	a := run{t, newServer(t, t.TempDir(), "mem://bad"), "a"}
	a.want(http.StatusBadRequest, "LOCK", "", "no JSON")
	a.want(http.StatusBadRequest, "LOCK", "", "{}")
	a.want(http.StatusMethodNotAllowed, "PATCH", "", "")
	for _, path := range []string{"/../../etc", "/.hidden", "/a/b", "/"} {
		a := run{t, strings.TrimSuffix(a.url, "/") + path, "a"}
		a.want(http.StatusNotFound, "GET", "", "")
	}
}

// What a run says of itself may be longer than what the store keeps: the ID stays.
func TestHolderText(t *testing.T) {
	long := strings.Repeat("ü", 100)
	text := holderText(info{ID: "5f0f8c1e-6f6b-4b5e-9a3c-0d3a4a5b6c7d", Who: long, Operation: long, Created: long})
	if len(text) > distlock.MaxHolder || !strings.Contains(text, "5f0f8c1e") {
		t.Errorf("the text is %q", text)
	}
	if got := holderInfo(distlock.Status{Held: true, Holder: "host pid 1", Token: 7}); got.ID != "token-7" || got.Who != "host pid 1" {
		t.Errorf("a holder that is no run: %+v", got)
	}
}

func newServer(t *testing.T, dir, url string) string {
	t.Helper()
	l, err := backends.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(NewServer(dir, l))
	t.Cleanup(func() {
		server.Close()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.URL
}
