package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"
)

// database is what the processes share: values by key, read and written one at a time.
// A value may be out of date when it is written back: locks are for that.
type database struct {
	url    string
	server *http.Server
	began  time.Time

	mu     sync.Mutex
	values map[string]int
	log    []entry
}

// entry is one thing that a process did.
type entry struct {
	At     time.Duration
	Worker int
	Text   string
}

// openDatabase serves a database that begins with some values.
func openDatabase(values map[string]int) (*database, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	db := &database{url: "http://" + listener.Addr().String(), began: time.Now(), values: make(map[string]int)}
	maps.Copy(db.values, values)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /read", db.serve(func(r request) int { return db.values[r.Key] }))
	mux.HandleFunc("POST /write", db.serve(func(r request) int { db.values[r.Key] = r.Value; return r.Value }))
	mux.HandleFunc("POST /begin", db.serve(func(request) int { db.values["begun"]++; return db.values["begun"] }))
	mux.HandleFunc("POST /tell", db.serve(func(r request) int {
		db.log = append(db.log, entry{time.Since(db.began), r.Worker, r.Text})
		return 0
	}))
	db.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go db.server.Serve(listener) // until close
	return db, nil
}

// request is what a process sends, and an integer is the answer.
type request struct {
	Key    string
	Value  int
	Worker int
	Text   string
}

func (db *database) serve(f func(request) int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req request
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		db.mu.Lock()
		defer db.mu.Unlock()
		_ = json.NewEncoder(w).Encode(f(req)) // a worker that has gone does not mind
	}
}

func (db *database) close() { _ = db.server.Close() }

// get returns a value, when all is over.
func (db *database) get(key string) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.values[key]
}

// count returns how many entries of the log have this text.
func (db *database) count(text string) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	n := 0
	for _, e := range db.log {
		if e.Text == text {
			n++
		}
	}
	return n
}

// print shows the steps of each process over time.
func (db *database) print(w io.Writer) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, e := range db.log {
		fmt.Fprintf(w, "  %6.3fs  worker %d  %s\n", e.At.Seconds(), e.Worker, e.Text)
	}
}

// connection is the database as a worker sees it.
type connection struct {
	url    string
	worker int
}

// begin waits until n workers have begun, so that they meet: some machines take longer to
// start a process than a scene takes.
func (c connection) begin(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	begun, err := c.send(ctx, "/begin", request{})
	for err == nil && begun < n {
		time.Sleep(time.Millisecond)
		begun, err = c.read(ctx, "begun")
	}
	return err
}

// read returns a value, 0 if there is none.
func (c connection) read(ctx context.Context, key string) (int, error) {
	return c.send(ctx, "/read", request{Key: key})
}

// write sets a value.
func (c connection) write(ctx context.Context, key string, value int) error {
	_, err := c.send(ctx, "/write", request{Key: key, Value: value})
	return err
}

// add reads a value, computes for a while, and writes it back with n added. Programs
// written without a thought of others do so.
func (c connection) add(ctx context.Context, key string, n int) error {
	value, err := c.read(ctx, key)
	if err != nil {
		return err
	}
	compute()
	return c.write(ctx, key, value+n)
}

// tell adds to the timeline.
func (c connection) tell(ctx context.Context, format string, args ...any) error {
	_, err := c.send(ctx, "/tell", request{Text: fmt.Sprintf(format, args...)})
	return err
}

func (c connection) send(ctx context.Context, path string, r request) (int, error) {
	r.Worker = c.worker
	body, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var value int
	return value, json.NewDecoder(resp.Body).Decode(&value)
}

// compute is the work between reading and writing: long enough for others to come in
// between, if they can.
func compute() { time.Sleep(5 * time.Millisecond) }
